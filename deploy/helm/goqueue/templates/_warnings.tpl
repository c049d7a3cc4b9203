{{/* What NOTES.txt warns of, a list. */}}
{{- define "goqueue.warnings" -}}
{{- $count := int .Values.replicaCount -}}
{{- $found := list -}}
{{- if eq $count 1 -}}
{{- $found = append $found "One node: nothing survives its death or the loss of its volume, and every upgrade is an outage." -}}
{{- else if eq (mod $count 2) 0 -}}
{{- $found = append $found (printf "%d nodes survive no more deaths than %d: use an odd number." $count (sub $count 1)) -}}
{{- end -}}
{{- if not .Values.persistence.enabled -}}
{{- $found = append $found "persistence.enabled is false: a node that is restarted elsewhere has lost its data; all at once, and all is lost." -}}
{{- end -}}
{{- if not .Values.tls.enabled -}}
{{- $found = append $found "tls.enabled is false: messages and API keys cross the network in the clear." -}}
{{- end -}}
{{- if not .Values.auth.enabled -}}
{{- $found = append $found "auth.enabled is false: whoever reaches the client port may do everything." -}}
{{- end -}}
{{- if not .Values.peerTls.enabled -}}
{{- $found = append $found "peerTls.enabled is false: replicas are copied between nodes in the clear." -}}
{{- end -}}
{{- if not .Values.networkPolicy.enabled -}}
{{- $found = append $found "networkPolicy.enabled is false: the peers' port is protected by its secret and certificates alone." -}}
{{- end -}}
{{- if not .Values.kubernetes.enabled -}}
{{- $found = append $found "kubernetes.enabled is false: add, drain and remove nodes by hand, and hand leaderships over before upgrades." -}}
{{- end -}}
{{- if and (not .Values.image.registry) (not .Values.global.imageRegistry) (eq .Values.image.repository "goqueue") -}}
{{- $found = append $found (printf "The image %s has no registry: it must be on every machine (kind: `kind load docker-image`), or set image.registry and image.repository." (include "goqueue.image" .)) -}}
{{- end -}}
{{- with .Values.config.cluster -}}
{{- if hasKey . "quorumSize" -}}
{{- $found = append $found "config.cluster.quorumSize has no effect: the quorum is always a majority." -}}
{{- end -}}
{{- if hasKey . "enabled" -}}
{{- $found = append $found "config.cluster.enabled has no effect: replicaCount decides." -}}
{{- end -}}
{{- end -}}
{{- range $name, $instead := include "goqueue.withoutEffect" . | fromYaml -}}
{{- $given := $.Values -}}
{{- range $part := splitList "." $name -}}
{{- if kindIs "map" $given -}}{{- $given = get $given $part -}}{{- else -}}{{- $given = "" -}}{{- end -}}
{{- end -}}
{{- if kindIs "map" $given -}}
{{- if eq (toString (get $given "enabled")) "false" -}}{{- $given = "" -}}{{- end -}}
{{- end -}}
{{- if $given -}}
{{- $found = append $found (printf "%s has no effect: %s." $name $instead) -}}
{{- end -}}
{{- end -}}
{{- if .Values.diagnosticMode.enabled -}}
{{- $found = append $found "diagnosticMode.enabled: the pods run no node." -}}
{{- end -}}
{{- if and .Values.tls.enabled (or .Values.ingress.enabled .Values.gateway.httpRoute.enabled) -}}
{{- $found = append $found "Nodes speak HTTPS: the ingress controller or gateway must, too, on its way to them (gateway.backendTlsPolicy)." -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* Values of GoQueue's published chart that are taken and change nothing, and what is so instead. */}}
{{- define "goqueue.withoutEffect" -}}
autoscaling: brokers move data when they come and go; scale consumers with keda.consumers
alertmanager: "this chart brings none; its alerts are in metrics.prometheusRule"
prometheus: "this chart brings none; see metrics"
traefik: "this chart brings none; see ingress and gateway"
persistence.existingClaim: each node has a volume of its own
livenessProbe.httpGet: the node's path is fixed
readinessProbe.httpGet: the node's path is fixed
startupProbe.httpGet: the node's path is fixed
metrics.serviceMonitor.path: it is /metrics
metrics.prometheusRule.rules: the alerts are the chart's own; name more in metrics.prometheusRule.extraGroups
tracing.samplingRate: whoever publishes decides, by the trace context
tracing.ringBufferCapacity: timelines are kept in the log
tracing.fileExport: spans go to a collector, by tracing.otlp
tracing.otlp.protocol: spans go by HTTP, as a rule to port 4318
tracing.otlp.insecure: the scheme of the endpoint decides
tracing.otlp.batchSize: what tracing.otlp.flushInterval collects is a batch
security.tls.selfSigned: certificates are made unless tls.existingSecret or tls.certManager says otherwise
security.tls.keepOnDelete: generated Secrets stay
security.tls.minVersion: it is TLS 1.2
security.tls.certFile: certificates come from a Secret, tls.existingSecret
security.tls.keyFile: keys come from a Secret, tls.existingSecret
security.clusterTls.selfSigned: certificates are made unless peerTls.existingSecret says otherwise
security.clusterTls.keepOnDelete: generated Secrets stay
security.clusterTls.minVersion: it is TLS 1.2
security.clusterTls.certFile: certificates come from a Secret, peerTls.existingSecret
security.clusterTls.keyFile: keys come from a Secret, peerTls.existingSecret
{{- end }}
