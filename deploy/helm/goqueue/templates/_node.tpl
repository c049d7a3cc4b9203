{{/* What a node is told beside goqueue.yaml: who it is. */}}
{{- define "goqueue.nodeEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: GOQUEUE_BROKER_NODEID
  value: "$(POD_NAME)"
- name: GOQUEUE_CLUSTER_ADVERTISE
  value: "$(POD_NAME).{{ include "goqueue.headlessDomain" . }}:{{ .Values.service.internalPort }}"
- name: GOQUEUE_CLUSTER_CLIENT_ADVERTISE
  value: "{{ include "goqueue.scheme" . }}://$(POD_NAME).{{ include "goqueue.headlessDomain" . }}:{{ .Values.service.httpPort }}"
{{- if .Values.kubernetes.enabled }}
- name: GOQUEUE_KUBERNETES_ENABLED
  value: "true"
- name: GOQUEUE_KUBERNETES_STATEFULSET
  value: {{ include "goqueue.fullname" . }}
- name: GOQUEUE_KUBERNETES_SERVICE
  value: {{ include "goqueue.headless" . }}
{{- end }}
{{- end }}

{{- define "goqueue.nodeMounts" -}}
- name: data
  mountPath: /var/lib/goqueue
- name: tmp
  mountPath: /tmp
- name: config
  mountPath: /etc/goqueue/goqueue.yaml
  subPath: goqueue.yaml
  readOnly: true
- name: secrets
  mountPath: /etc/goqueue/secrets
  readOnly: true
{{- if .Values.tls.enabled }}
- name: tls
  mountPath: /etc/goqueue/tls
  readOnly: true
{{- end }}
{{- if .Values.peerTls.enabled }}
- name: peer-tls
  mountPath: /etc/goqueue/peer-tls
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "goqueue.nodeVolumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
- name: config
  configMap:
    name: {{ include "goqueue.fullname" . }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ include "goqueue.clusterSecretName" . }}
          items:
            - key: {{ .Values.clusterSecret.existingSecretKey }}
              path: cluster-secret
      {{- if .Values.auth.enabled }}
      - secret:
          name: {{ include "goqueue.adminSecretName" . }}
          items:
            - key: {{ .Values.auth.existingSecretKey }}
              path: admin-key
      {{- end }}
{{- if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "goqueue.tlsSecretName" . }}
    defaultMode: 0440
{{- end }}
{{- if .Values.peerTls.enabled }}
- name: peer-tls
  secret:
    secretName: {{ include "goqueue.peerTlsSecretName" . }}
    defaultMode: 0440
{{- end }}
{{- if not .Values.persistence.enabled }}
- name: data
  emptyDir: {}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
