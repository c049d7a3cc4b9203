"""The values that the chart is rendered with, each by a name that says what is special."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]

GATEWAY: list[Json] = [{"name": "public", "namespace": "gateways", "sectionName": "https"}]

READER: Json = {"name": "prometheus-key", "key": "token"}

MONITORING: Json = {
    "metrics": {
        "serviceMonitor": {
            "enabled": True,
            "additionalLabels": {"release": "prometheus"},
            "credentials": READER,
            "relabelings": [{"action": "labeldrop", "regex": "pod"}],
            "metricRelabelings": [{"action": "labeldrop", "regex": "lane"}],
        },
        "podMonitor": {
            "enabled": True,
            "namespace": "monitoring",
            "credentials": READER,
            "tlsConfig": {"insecureSkipVerify": True},
        },
        "prometheusRule": {"enabled": True, "runbookBaseUrl": "https://wiki.example.com/g/"},
    },
    "grafana": {"dashboards": {"enabled": True, "annotations": {"grafana_folder": "GoQueue"}}},
}

EXISTING: Json = {
    "clusterSecret": {"existingSecret": "mine", "existingSecretKey": "word"},
    "auth": {"existingSecret": "keys", "existingSecretKey": "first"},
    "tls": {"existingSecret": "certificates"},
    "peerTls": {"existingSecret": "peer-certificates"},
}

EVERYTHING: Json = {
    **MONITORING,
    "replicaCount": 5,
    "commonLabels": {"team": "queues"},
    "commonAnnotations": {"example.com/owner": "queues"},
    "podLabels": {"tier": "data"},
    "podAnnotations": {"example.com/scan": "no"},
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "regcred"}],
    "image": {"registry": "registry.example.com", "digest": "sha256:" + "0" * 64},
    "global": {"storageClass": "fast", "imagePullSecrets": [{"name": "all"}]},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "queues", "operator": "Exists"}],
    "podAntiAffinity": {"type": "hard"},
    "terminationGracePeriodSeconds": 600,
    "config": {
        "defaults": {"topic": {"partitions": 12, "retention": {"hours": 72}}},
        "raft": {"copyRate": "50MiB"},
        "cluster": {"enabled": True, "quorumSize": 2},
    },
    "service": {
        "type": "LoadBalancer",
        "grpcEnabled": True,
        "h2Enabled": True,
        "redisEnabled": True,
        "annotations": {"example.com/lb": "internal"},
        "loadBalancerClass": "example.com/lb",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "ipFamilyPolicy": "PreferDualStack",
    },
    "tls": {"extraDnsNames": ["queues.example.com"], "extraIpAddresses": ["192.0.2.7"]},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "hosts": [{"host": "queues.example.com"}],
        "tls": [{"secretName": "public", "hosts": ["queues.example.com"]}],
    },
    "grpcIngress": {"enabled": True, "hosts": [{"host": "grpc.example.com"}]},
    "gateway": {
        "httpRoute": {"enabled": True, "parentRefs": GATEWAY, "hostnames": ["q.example.com"]},
        "backendTlsPolicy": {"enabled": True, "caConfigMap": "goqueue-authority"},
        "grpcRoute": {"enabled": True, "parentRefs": GATEWAY, "hostnames": ["g.example.com"]},
        "tlsRoute": {"enabled": True, "parentRefs": GATEWAY, "hostnames": ["t.example.com"]},
    },
    "networkPolicy": {
        "clientFrom": [{"namespaceSelector": {"matchLabels": {"uses": "queues"}}}],
        "extraIngress": [{"ports": [{"port": 9999}]}],
        "egress": {"enabled": True},
        "extraEgress": [{"ports": [{"port": 4318}]}],
    },
    "persistence": {
        "createStorageClass": {"enabled": True},
        "annotations": {"example.com/backup": "yes"},
        "selector": {"matchLabels": {"disk": "ssd"}},
        "whenDeleted": "Delete",
    },
    "keda": {
        "existingSecret": "lag-key",
        "consumers": [
            {"name": "billing", "group": "billing", "topic": "orders", "lagThreshold": 500},
            {
                "name": "mail",
                "group": "mail",
                "deployment": "mailer",
                "kind": "StatefulSet",
                "metric": "max_lag_seconds",
                "activationLagThreshold": 5,
                "minReplicaCount": 1,
                "maxReplicaCount": 3,
            },
        ],
    },
    "archive": {
        "enabled": True,
        "destination": "s3a://archives/goqueue",
        "topics": ["orders", "mail.*"],
        "existingSecret": "archive-key",
        "extraArgs": ["--master", "local[2]"],
        "image": "registry.example.com/goqueue-spark:1",
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}},
        "extraEnv": [{"name": "AWS_REGION", "value": "eu-central-1"}],
    },
    "extraEnv": [{"name": "GOQUEUE_LOGGING_LEVEL", "value": "debug"}],
    "extraEnvFrom": [{"secretRef": {"name": "otlp"}}],
    "extraVolumes": [{"name": "spool", "emptyDir": {"sizeLimit": "1Mi"}}],
    "extraVolumeMounts": [{"name": "spool", "mountPath": "/spool"}],
    "extraDeploy": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "b"}},
        'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "{{ .Release.Name }}-two"}',
    ],
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "three"}, "data": {}}
    ],
}

GOQUEUES_OWN: Json = {
    "replicaCount": 3,
    "image": {"repository": "ghcr.io/example/goqueue", "tag": "v1", "pullPolicy": "Always"},
    "service": {"type": "NodePort", "nodePort": 30080, "externalTrafficPolicy": "Local"},
    "config": {"cluster": {"enabled": True, "quorumSize": 2}},
    "podDisruptionBudget": {"enabled": True, "minAvailable": 2},
    "security": {
        "tls": {"enabled": True, "existingSecret": "theirs"},
        "clusterTls": {"enabled": False},
        "auth": {"enabled": True, "existingSecret": "their-key"},
    },
    "persistence": {"storageClass": "gp3", "size": "20Gi", "annotations": {"a": "b"}},
}

_PROBE: Json = {
    "httpGet": {"path": "/healthz", "port": "http"},
    "initialDelaySeconds": 30,
    "periodSeconds": 10,
    "timeoutSeconds": 5,
    "failureThreshold": 3,
}
_HOSTS: Json = {
    "enabled": False,
    "className": "traefik",
    "annotations": {},
    "hosts": [{"host": "goqueue.local", "paths": [{"path": "/", "pathType": "Prefix"}]}],
    "tls": [],
}
PUBLISHED: Json = {
    "global": {"imagePullSecrets": [], "storageClass": ""},
    "replicaCount": 3,
    "image": {"repository": "ghcr.io/example/goqueue", "pullPolicy": "IfNotPresent", "tag": "v1"},
    "imagePullSecrets": [],
    "nameOverride": "",
    "fullnameOverride": "",
    "serviceAccount": {"create": True, "annotations": {}, "name": ""},
    "podAnnotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
    "podLabels": {},
    "podSecurityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532},
    "securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    "config": {"cluster": {"enabled": True, "quorumSize": 2}},
    "service": {
        "type": "ClusterIP",
        "httpPort": 8080,
        "grpcPort": 9000,
        "internalPort": 7000,
        "annotations": {},
        "externalTrafficPolicy": "Cluster",
    },
    "headlessService": {"annotations": {}},
    "ingress": _HOSTS,
    "grpcIngress": {**_HOSTS, "enabled": True},
    "persistence": {
        "enabled": True,
        "storageClass": "",
        "createStorageClass": {
            "enabled": False,
            "name": "goqueue-storage",
            "provisioner": "ebs.csi.aws.com",
            "parameters": {"type": "gp3", "encrypted": "true"},
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
        },
        "accessMode": "ReadWriteOnce",
        "size": "10Gi",
        "annotations": {},
        "selector": {},
        "existingClaim": "theirs",
    },
    "resources": {"limits": {"cpu": "3", "memory": "5Gi"}, "requests": {"cpu": "2"}},
    "autoscaling": {"enabled": True, "minReplicas": 3, "targetCPUUtilizationPercentage": 70},
    "nodeSelector": {},
    "tolerations": [],
    "affinity": {"podAntiAffinity": {}},
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "podDisruptionBudget": {"enabled": True, "minAvailable": 2},
    "metrics": {
        "enabled": True,
        "anonymous": True,
        "serviceMonitor": {
            "enabled": True,
            "additionalLabels": {},
            "namespace": "",
            "interval": "15s",
            "scrapeTimeout": "10s",
            "path": "/metrics",
            "metricRelabelings": [],
            "relabelings": [],
        },
        "prometheusRule": {
            "enabled": True,
            "additionalLabels": {},
            "namespace": "",
            "runbookBaseUrl": "https://goqueue.dev/docs/runbooks",
            "rules": [{"alert": "GoQueueDown", "expr": "up == 0"}],
        },
    },
    "grafana": {
        "enabled": False,
        "dashboards": {"enabled": True, "label": "grafana_dashboard", "labelValue": "1"},
    },
    "tracing": {
        "enabled": True,
        "samplingRate": 1.0,
        "ringBufferCapacity": 100000,
        "fileExport": {"enabled": True, "maxFileSize": 10485760},
        "otlp": {
            "enabled": True,
            "endpoint": "http://collector:4318",
            "protocol": "grpc",
            "insecure": True,
            "headers": {"a": "b"},
            "batchSize": 512,
            "flushInterval": "5s",
            "serviceName": "theirs",
        },
    },
    "alertmanager": {"enabled": True, "slack": {"enabled": True, "channel": "#alerts"}},
    "prometheus": {"enabled": True, "kube-prometheus-stack": {"grafana": {"enabled": True}}},
    "traefik": {"enabled": False, "traefik": {"service": {"type": "LoadBalancer"}}},
    "extraObjects": [],
    "security": {
        "tls": {
            "enabled": True,
            "selfSigned": True,
            "keepOnDelete": False,
            "existingSecret": "",
            "minVersion": "1.2",
            "certFile": "",
            "keyFile": "",
        }
    },
}
"""Every value of the chart that GoQueue publishes, as its own values.yaml has them or turned on."""

NO_KEYS: Json = {"enabled": False, "insecureOpen": True}
ISSUER: Json = {"enabled": True, "issuerRef": {"name": "letsencrypt", "kind": "ClusterIssuer"}}

CASES: dict[str, Json] = {
    "defaults": {},
    "one node": {"replicaCount": 1},
    "five nodes": {"replicaCount": 5},
    "TLS off": {"tls": {"enabled": False}, "peerTls": {"enabled": False}},
    "TLS and keys off": {"tls": {"enabled": False}, "auth": NO_KEYS},
    "cert-manager": {"tls": {"certManager": ISSUER}},
    "monitoring on": MONITORING,
    "existing secrets": EXISTING,
    "everything on": EVERYTHING,
    "GoQueue's own values": GOQUEUES_OWN,
    "all of GoQueue's values": PUBLISHED,
    "no Kubernetes API": {"kubernetes": {"enabled": False}, "rbac": {"create": False}},
    "no volumes": {"persistence": {"enabled": False}, "podAntiAffinity": {"type": "none"}},
    "diagnostic mode": {"diagnosticMode": {"enabled": True}},
    "long names": {"fullnameOverride": "q" * 40, "commonLabels": {"a": "b"}},
    "kind": yaml.safe_load((ROOT / "deploy" / "kind" / "values.yaml").read_text()),
    "IPv6 only": {"listenAddress": "[::]", "service": {"ipFamilyPolicy": "SingleStack"}},
}
