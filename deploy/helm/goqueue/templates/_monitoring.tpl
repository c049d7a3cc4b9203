{{/* How Prometheus' operator reads every node's /metrics. Takes the root, `monitor` and `port`. */}}
{{- define "goqueue.endpoint" -}}
port: {{ .port }}
path: /metrics
scheme: {{ include "goqueue.scheme" .root }}
interval: {{ .monitor.interval }}
scrapeTimeout: {{ .monitor.scrapeTimeout }}
{{- with .monitor.credentials }}
authorization:
  credentials:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- if .root.Values.tls.enabled }}
tlsConfig:
  {{- if .monitor.tlsConfig }}
  {{- toYaml .monitor.tlsConfig | nindent 2 }}
  {{- else }}
  ca:
    secret:
      name: {{ include "goqueue.tlsSecretName" .root }}
      key: ca.crt
  serverName: {{ include "goqueue.serviceDomain" .root }}
  {{- end }}
{{- end }}
relabelings:
  - targetLabel: job
    replacement: goqueue
  - targetLabel: cluster
    replacement: {{ include "goqueue.clusterLabel" .root }}
  - sourceLabels: [__meta_kubernetes_pod_name]
    targetLabel: instance
  {{- with .monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
