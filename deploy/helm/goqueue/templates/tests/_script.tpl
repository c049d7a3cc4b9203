{{/* A pod for `helm test`. Takes the root, `name` and `script`, a template of a shell script. */}}
{{- define "goqueue.testPod" -}}
{{- $ := .root -}}
apiVersion: v1
kind: Pod
metadata:
  {{- $notes := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation" }}
  {{- include "goqueue.metadata" (dict "root" $ "name" (printf "%s-test-%s" (include "goqueue.fullname" $) .name) "component" "test" "annotations" $notes) | nindent 2 }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- include "goqueue.pullSecrets" $ | indent 2 }}
  securityContext:
    {{- toYaml $.Values.podSecurityContext | nindent 4 }}
  containers:
    - name: {{ .name }}
      image: {{ include "goqueue.image" $ | quote }}
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      command: ["/bin/sh", "-eu", "-c"]
      args:
        - |
          {{- if $.Values.auth.enabled }}
          GOQUEUE_API_KEY="$(cat /etc/goqueue/key/api-key)"
          export GOQUEUE_API_KEY
          {{- end }}
          {{- .script | nindent 10 }}
      env:
        - name: HOME
          value: /tmp
        {{- include "goqueue.clientEnv" $ | nindent 8 }}
      resources:
        {{- toYaml $.Values.tests.resources | nindent 8 }}
      securityContext:
        {{- toYaml $.Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "goqueue.clientMounts" $ | nindent 8 }}
  volumes:
    {{- include "goqueue.clientVolumes" (dict "root" $ "secret" (include "goqueue.adminSecretName" $) "key" $.Values.auth.existingSecretKey) | nindent 4 }}
{{- end }}
