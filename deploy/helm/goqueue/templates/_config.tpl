{{- define "goqueue.config" -}}
{{- $host := .Values.listenHost -}}
{{- $own := dict
  "broker" (dict
    "dataDir" "/var/lib/goqueue"
    "listeners" (dict
      "http" (printf "%s:%v" $host .Values.service.httpPort)
      "internal" (printf "%s:%v" $host .Values.service.internalPort)))
  "cluster" (dict "secretFile" "/etc/goqueue/secrets/cluster-secret")
  "logging" (dict "format" "json") -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $own "tls" (dict "enabled" true "certFile" "/etc/goqueue/tls/tls.crt" "keyFile" "/etc/goqueue/tls/tls.key") -}}
{{- end -}}
{{- if .Values.auth.enabled -}}
{{- $_ := set $own "auth" (dict "enabled" true "adminKeyFile" "/etc/goqueue/secrets/admin-key") -}}
{{- end -}}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.config)) -}}
{{- end }}
