{{/* The names of the client port's certificate, a list. */}}
{{- define "goqueue.dnsNames" -}}
{{- $service := include "goqueue.serviceDomain" . -}}
{{- $names := list
  (include "goqueue.fullname" .)
  (printf "%s.%s" (include "goqueue.fullname" .) .Release.Namespace)
  $service
  (printf "%s.%s" $service .Values.clusterDomain)
  (printf "*.%s" (include "goqueue.headlessDomain" .))
  "localhost" -}}
{{- concat $names .Values.tls.extraDnsNames | toYaml -}}
{{- end }}

{{/* The names of peers, a list: a node is known by its pod's. */}}
{{- define "goqueue.peerNames" -}}
{{- range $ordinal := until 32 }}
- {{ include "goqueue.fullname" $ }}-{{ $ordinal }}
{{- end -}}
{{- end }}

{{/*
Two Secrets: an authority that is kept for ever, and a certificate of it, kept until its names change,
it is asked for anew, or its last third begins. Takes the root, `name`, `authority` (their names),
`dns`, `ips` (lists), `days`, `renew`.
*/}}
{{- define "goqueue.issued" -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $oldAuthority := (lookup "v1" "Secret" $namespace .authority).data | default dict -}}
{{- $old := lookup "v1" "Secret" $namespace .name -}}
{{- $oldNotes := dig "metadata" "annotations" dict $old -}}
{{- $oldData := dig "data" dict $old -}}
{{- $now := now | unixEpoch | int64 -}}
{{- $lasts := mul .days 86400 | int64 -}}
{{- $seal := printf "%s %s %v %s" (join "," .dns) (join "," .ips) .days .renew | sha256sum | trunc 16 -}}
{{- $until := get $oldNotes "goqueue.io/valid-until" | default "0" | int64 -}}
{{- $stays := and (get $oldData "tls.crt") (get $oldData "tls.key") (get $oldAuthority "ca.crt") (eq (get $oldNotes "goqueue.io/issued-for" | default "") $seal) (gt (sub $until $now) (div $lasts 3)) -}}
{{- $ca := dict -}}
{{- if and (get $oldAuthority "ca.crt") (get $oldAuthority "ca.key") -}}
{{- $ca = buildCustomCert (get $oldAuthority "ca.crt") (get $oldAuthority "ca.key") -}}
{{- else -}}
{{- $ca = genCAWithKey .authority 7300 (genPrivateKey "ecdsa") -}}
{{- end -}}
{{- $data := dict "ca.crt" ($ca.Cert | b64enc) -}}
{{- if $stays -}}
{{- $_ := set $data "tls.crt" (get $oldData "tls.crt") -}}
{{- $_ := set $data "tls.key" (get $oldData "tls.key") -}}
{{- else -}}
{{- $leaf := genSignedCertWithKey (first .dns) .ips .dns (int .days) $ca (genPrivateKey "ecdsa") -}}
{{- $_ := set $data "tls.crt" ($leaf.Cert | b64enc) -}}
{{- $_ := set $data "tls.key" ($leaf.Key | b64enc) -}}
{{- $until = add $now $lasts -}}
{{- end }}
apiVersion: v1
kind: Secret
metadata:
  {{- include "goqueue.metadata" (dict "root" .root "name" .authority "annotations" (dict "helm.sh/resource-policy" "keep")) | nindent 2 }}
type: Opaque
data:
  ca.crt: {{ $ca.Cert | b64enc }}
  ca.key: {{ $ca.Key | b64enc }}
---
apiVersion: v1
kind: Secret
metadata:
  {{- $notes := dict "helm.sh/resource-policy" "keep" "goqueue.io/issued-for" $seal "goqueue.io/valid-until" (toString $until) }}
  {{- include "goqueue.metadata" (dict "root" .root "name" .name "annotations" $notes) | nindent 2 }}
type: kubernetes.io/tls
data:
  {{- toYaml $data | nindent 2 }}
{{- end }}
