{{- define "goqueue.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Of the StatefulSet, so of every pod and node: 40 characters leave room for what is added. */}}
{{- define "goqueue.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "goqueue.headless" -}}
{{- printf "%s-headless" (include "goqueue.fullname" .) -}}
{{- end }}

{{- define "goqueue.headlessDomain" -}}
{{- printf "%s.%s.svc.%s" (include "goqueue.headless" .) .Release.Namespace .Values.clusterDomain -}}
{{- end }}

{{- define "goqueue.serviceDomain" -}}
{{- printf "%s.%s.svc" (include "goqueue.fullname" .) .Release.Namespace -}}
{{- end }}

{{- define "goqueue.scheme" -}}
{{- ternary "https" "http" .Values.tls.enabled -}}
{{- end }}

{{- define "goqueue.url" -}}
{{- printf "%s://%s:%v" (include "goqueue.scheme" .) (include "goqueue.serviceDomain" .) .Values.service.httpPort -}}
{{- end }}

{{- define "goqueue.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "goqueue.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "goqueue.archiveServiceAccountName" -}}
{{- default (printf "%s-archive" (include "goqueue.fullname" .)) .Values.archive.serviceAccount.name -}}
{{- end }}

{{- define "goqueue.clusterSecretName" -}}
{{- default (printf "%s-cluster" (include "goqueue.fullname" .)) .Values.clusterSecret.existingSecret -}}
{{- end }}

{{- define "goqueue.adminSecretName" -}}
{{- default (printf "%s-admin" (include "goqueue.fullname" .)) .Values.auth.existingSecret -}}
{{- end }}

{{- define "goqueue.tlsSecretName" -}}
{{- default (printf "%s-tls" (include "goqueue.fullname" .)) .Values.tls.existingSecret -}}
{{- end }}

{{- define "goqueue.peerTlsSecretName" -}}
{{- default (printf "%s-peer-tls" (include "goqueue.fullname" .)) .Values.peerTls.existingSecret -}}
{{- end }}

{{- define "goqueue.image" -}}
{{- $registry := default .Values.image.registry .Values.global.imageRegistry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .Values.image.repository -}}
{{- if .Values.image.digest }}@{{ .Values.image.digest -}}
{{- else }}:{{ default .Chart.AppVersion .Values.image.tag -}}
{{- end -}}
{{- end }}

{{/* The image with Spark: beside the nodes' own, of the same version. */}}
{{- define "goqueue.pipelineImage" -}}
{{- $registry := default .Values.image.registry .Values.global.imageRegistry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ .Values.image.repository }}-pipeline:{{ default .Chart.AppVersion .Values.image.tag -}}
{{- end }}

{{- define "goqueue.clusterLabel" -}}
{{- default (include "goqueue.fullname" .) .Values.metrics.clusterLabel -}}
{{- end }}

{{/* The ConfigMap that remembers the cluster's id; nodes make the same name from the StatefulSet's. */}}
{{- define "goqueue.clusterIdName" -}}
{{- printf "%s-cluster-id" (include "goqueue.fullname" .) -}}
{{- end }}

{{/* Ports of listeners for other protocols, of those that are enabled, or led to: name, and number. */}}
{{- define "goqueue.listeners" -}}
{{- $found := list -}}
{{- range $name := list "grpc" "h2" "redis" -}}
{{- $isLedTo := and (eq $name "grpc") (or $.Values.grpcIngress.enabled $.Values.gateway.grpcRoute.enabled) -}}
{{- if or $isLedTo (get $.Values.service (printf "%sEnabled" $name)) -}}
{{- $found = append $found (dict "name" $name "port" (get $.Values.service (printf "%sPort" $name))) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}
