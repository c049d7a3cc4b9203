{{/* goqueue.yaml: what the chart decides, and `config` for the rest. */}}
{{- define "goqueue.config" -}}
{{- $host := .Values.listenAddress -}}
{{- $listeners := dict
  "http" (printf "%s:%v" $host .Values.service.httpPort)
  "internal" (printf "%s:%v" $host .Values.service.internalPort) -}}
{{- $own := dict
  "broker" (dict "dataDir" "/var/lib/goqueue" "listeners" $listeners)
  "cluster" (dict "secretFile" "/etc/goqueue/secrets/cluster-secret")
  "logging" (dict "format" "json") -}}
{{- $others := dict -}}
{{- range include "goqueue.listeners" . | fromYamlArray -}}
{{- $_ := set $others .name (dict "enabled" true "port" (int .port)) -}}
{{- end -}}
{{- if $others -}}
{{- $_ := set $own "listeners" $others -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $own "tls" (dict "enabled" true "certFile" "/etc/goqueue/tls/tls.crt" "keyFile" "/etc/goqueue/tls/tls.key") -}}
{{- end -}}
{{- if .Values.peerTls.enabled -}}
{{- $_ := set $own.cluster "tls" (dict "enabled" true
  "certFile" "/etc/goqueue/peer-tls/tls.crt"
  "keyFile" "/etc/goqueue/peer-tls/tls.key"
  "caFile" "/etc/goqueue/peer-tls/ca.crt") -}}
{{- end -}}
{{- if .Values.auth.enabled -}}
{{- $_ := set $own "auth" (dict "enabled" true "adminKeyFile" "/etc/goqueue/secrets/admin-key" "metricsAnonymous" .Values.metrics.anonymous) -}}
{{- end -}}
{{- if .Values.auth.insecureOpen -}}
{{- $_ := set $own "auth" (merge (dict "insecureOpen" true) ($own.auth | default dict)) -}}
{{- end -}}
{{- if and .Values.tracing.otlp (ne .Values.tracing.enabled false) -}}
{{- $otlp := pick .Values.tracing.otlp "enabled" "endpoint" "headers" "flushInterval" "serviceName" -}}
{{- if not $otlp.endpoint -}}{{- $otlp = omit $otlp "endpoint" -}}{{- end -}}
{{- $_ := set $own "tracing" (dict "otlp" $otlp) -}}
{{- end -}}
{{- if not .Values.kubernetes.enabled -}}
{{- $peers := dict -}}
{{- range $ordinal := until (int .Values.replicaCount) -}}
{{- $node := printf "%s-%d" (include "goqueue.fullname" $) $ordinal -}}
{{- $_ := set $peers $node (printf "%s.%s:%v" $node (include "goqueue.headlessDomain" $) $.Values.service.internalPort) -}}
{{- end -}}
{{- $_ := set $own.cluster "peers" $peers -}}
{{- end -}}
{{- $given := deepCopy .Values.config -}}
{{- with $given.cluster -}}
{{- $_ := set $given "cluster" (omit . "enabled" "quorumSize") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $own $given) -}}
{{- end }}
