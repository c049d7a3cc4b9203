{{- define "goqueue.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Preferred or required places. */}}
{{- define "goqueue.affinity" -}}
{{- if .Values.affinity }}
{{- toYaml .Values.affinity }}
{{- else if ne .Values.podAntiAffinity.type "none" }}
{{- $term := dict "topologyKey" .Values.podAntiAffinity.topologyKey "labelSelector" (dict "matchLabels" (include "goqueue.nodes" . | fromYaml)) }}
podAntiAffinity:
  {{- if eq .Values.podAntiAffinity.type "hard" }}
  requiredDuringSchedulingIgnoredDuringExecution:
    - {{- toYaml $term | nindent 6 }}
  {{- else }}
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: {{ .Values.podAntiAffinity.weight }}
      podAffinityTerm:
        {{- toYaml $term | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "goqueue.spread" -}}
{{- $nodes := dict "labelSelector" (dict "matchLabels" (include "goqueue.nodes" . | fromYaml)) -}}
{{- $all := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $all = append $all (ternary . (merge dict . $nodes) (hasKey . "labelSelector")) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end }}

{{/* A probe of the client port. Takes the root, `path` and `times`. */}}
{{- define "goqueue.probe" -}}
httpGet:
  path: {{ .path }}
  port: client
  scheme: {{ include "goqueue.scheme" .root | upper }}
{{- with omit .times "httpGet" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where a program finds the cluster; its key is in the file /etc/goqueue/key/api-key. */}}
{{- define "goqueue.clientEnv" -}}
- name: GOQUEUE_SERVER
  value: {{ include "goqueue.url" . }}
{{- if .Values.tls.enabled }}
- name: GOQUEUE_CA_FILE
  value: /etc/goqueue/tls/ca.crt
{{- end }}
{{- end }}

{{/* What a program needs of the Secrets. Takes the root, `secret` and `key` of an API key, and how much `scratch` it may fill. */}}
{{- define "goqueue.clientVolumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ default "64Mi" .scratch }}
{{- if .root.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "goqueue.tlsSecretName" .root }}
    defaultMode: 0440
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- if .root.Values.auth.enabled }}
- name: key
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - key: {{ .key }}
        path: api-key
{{- end }}
{{- end }}

{{- define "goqueue.clientMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.tls.enabled }}
- name: tls
  mountPath: /etc/goqueue/tls
  readOnly: true
{{- end }}
{{- if .Values.auth.enabled }}
- name: key
  mountPath: /etc/goqueue/key
  readOnly: true
{{- end }}
{{- end }}
