{{/*
Every template begins with this: GoQueue's names take their places, and what values.schema.json can't
refuse is refused, all at once.
*/}}
{{- define "goqueue.begin" -}}
{{- $_ := mergeOverwrite .Values.tls .Values.security.tls -}}
{{- $_ := mergeOverwrite .Values.peerTls .Values.security.clusterTls -}}
{{- $_ := mergeOverwrite .Values.auth .Values.security.auth -}}
{{- $problems := list -}}
{{- $config := .Values.config -}}
{{- range $key, $instead := include "goqueue.owned" . | fromYaml -}}
{{- $found := $config -}}
{{- range $name := splitList "." $key -}}
{{- if kindIs "map" $found -}}{{- $found = get $found $name -}}{{- else -}}{{- $found = "" -}}{{- end -}}
{{- end -}}
{{- if not (kindIs "string" $found | and (eq (toString $found) "")) -}}
{{- $problems = append $problems (printf "config.%s is decided by %s" $key $instead) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tls.enabled .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- $problems = append $problems "tls.certManager.issuerRef.name is needed: who issues the certificate" -}}
{{- end -}}
{{- if and .Values.tls.enabled .Values.tls.certManager.enabled .Values.tls.existingSecret -}}
{{- $problems = append $problems "tls.certManager.enabled and tls.existingSecret exclude each other" -}}
{{- end -}}
{{- range $name := list "httpRoute" "tlsRoute" -}}
{{- $route := get $.Values.gateway $name -}}
{{- if and $route.enabled (not $route.parentRefs) -}}
{{- $problems = append $problems (printf "gateway.%s.parentRefs is needed: the gateway it belongs to" $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.gateway.tlsRoute.enabled (not .Values.gateway.tlsRoute.hostnames) -}}
{{- $problems = append $problems "gateway.tlsRoute.hostnames is needed: TLS is routed by them" -}}
{{- end -}}
{{- if and .Values.gateway.tlsRoute.enabled (not .Values.tls.enabled) -}}
{{- $problems = append $problems "gateway.tlsRoute.enabled takes tls.enabled: it leaves TLS to the nodes" -}}
{{- end -}}
{{- if and .Values.archive.enabled (not .Values.archive.destination) -}}
{{- $problems = append $problems "archive.destination is needed: where the archive is" -}}
{{- end -}}
{{- if and .Values.keda.consumers .Values.auth.enabled (not .Values.keda.existingSecret) -}}
{{- $problems = append $problems "keda.existingSecret is needed while auth.enabled: a readonly API key to ask for the lag with" -}}
{{- end -}}
{{- range $name := list "serviceMonitor" "podMonitor" -}}
{{- $monitor := get $.Values.metrics $name -}}
{{- if and $.Values.metrics.enabled $monitor.enabled $.Values.auth.enabled (not $.Values.metrics.anonymous) (not $monitor.credentials) -}}
{{- $problems = append $problems (printf "metrics.%s.credentials is needed while auth.enabled: a readonly API key to read /metrics with (or metrics.anonymous)" $name) -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.persistence.whenScaled "Delete" -}}
{{- $problems = append $problems "persistence.whenScaled: Delete would delete the volumes of nodes that were not drained in their grace period, with the only copies of messages: leave it at Retain, and delete the claim of a broker once `goqueue-cli cluster nodes` no longer has it" -}}
{{- end -}}
{{- if not (or .Values.auth.enabled .Values.auth.insecureOpen) -}}
{{- $problems = append $problems "auth.enabled: false lets whoever reaches the client port do everything; say auth.insecureOpen: true where that is meant" -}}
{{- end -}}
{{- $ports := list (int .Values.service.httpPort) (int .Values.service.internalPort) -}}
{{- range include "goqueue.listeners" . | fromYamlArray -}}{{- $ports = append $ports (int .port) -}}{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- $problems = append $problems "service.httpPort, service.internalPort, service.grpcPort, service.h2Port and service.redisPort must differ" -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n  - %s" (join "\n  - " $problems)) -}}
{{- end -}}
{{- end }}

{{/*
Refuses to take away several nodes at once while more than one of them still holds replicas: their pods end together
when their grace period is over, drained or not. Sees what the cluster tells; `helm template` sees nothing.
*/}}
{{- define "goqueue.checkStep" -}}
{{- if .Values.kubernetes.enabled -}}
{{- $full := include "goqueue.fullname" . -}}
{{- $before := dig "spec" "replicas" 0 (lookup "apps/v1" "StatefulSet" .Release.Namespace $full) | int -}}
{{- $holding := list -}}
{{- range $ordinal := untilStep (int .Values.replicaCount) $before 1 -}}
{{- $pod := printf "%s-%d" $full $ordinal -}}
{{- if ne (dig "metadata" "labels" "goqueue.io/drained" "" (lookup "v1" "Pod" $.Release.Namespace $pod)) "true" -}}
{{- $holding = append $holding $pod -}}
{{- end -}}
{{- end -}}
{{- if gt (len $holding) 1 -}}
{{- fail (printf "\n  - replicaCount %v would take away %s at once, and they are not drained: take away one at a time, or drain them first with `goqueue-cli cluster drain NODE --wait`. Where --set did not name it, replicaCount is the chart's default: see --reset-then-reuse-values" .Values.replicaCount (join ", " $holding)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Keys of the node's configuration that the chart writes, and what decides them. */}}
{{- define "goqueue.owned" -}}
broker.nodeId: the pod's name
broker.dataDir: persistence
broker.listeners: listenAddress and service.httpPort and internalPort
listeners: service.grpcEnabled, h2Enabled and redisEnabled, and their ports
cluster.advertise: the headless Service
cluster.clientAdvertise: the headless Service
cluster.peers: the headless Service
cluster.secret: clusterSecret
cluster.secretFile: clusterSecret
cluster.tls: peerTls
tls: tls
auth.enabled: auth.enabled
auth.insecureOpen: auth.insecureOpen
auth.rootKey: auth.existingSecret
auth.adminKeyFile: auth.existingSecret
auth.metricsAnonymous: metrics.anonymous
kubernetes.enabled: kubernetes.enabled
kubernetes.statefulset: kubernetes.enabled
kubernetes.service: kubernetes.enabled
kubernetes.pod: kubernetes.enabled
kubernetes.namespace: kubernetes.enabled
kubernetes.machine: kubernetes.enabled
kubernetes.apiHost: kubernetes.enabled
kubernetes.apiPort: kubernetes.enabled
kubernetes.account: kubernetes.enabled
{{- end }}
