{{/* What objects of this release are told by: never changes. */}}
{{- define "goqueue.selector" -}}
app.kubernetes.io/name: {{ include "goqueue.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The pods that are nodes; not those of tests and jobs. */}}
{{- define "goqueue.nodes" -}}
{{ include "goqueue.selector" . }}
app.kubernetes.io/component: node
{{- end }}

{{- define "goqueue.labels" -}}
{{- with .Values.commonLabels }}
{{- toYaml . }}
{{ end -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "goqueue.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: goqueue
{{- end }}

{{/* `metadata` of an object. Takes the root, `name`, and may take `namespace`, `component`, `labels`, `annotations`. */}}
{{- define "goqueue.metadata" -}}
name: {{ .name }}
{{- if not .clusterWide }}
namespace: {{ default .root.Release.Namespace .namespace }}
{{- end }}
labels:
  {{- $labels := include "goqueue.labels" .root | fromYaml }}
  {{- with .component }}{{ $_ := set $labels "app.kubernetes.io/component" . }}{{ end }}
  {{- toYaml (merge dict (.labels | default dict) $labels) | nindent 2 }}
{{- with merge dict (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
