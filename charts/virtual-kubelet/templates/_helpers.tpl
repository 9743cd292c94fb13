{{- define "vk.name" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "vk.selector" -}}
app.kubernetes.io/name: virtual-kubelet
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "vk.labels" -}}
{{ include "vk.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "vk.metadata" -}}
name: {{ include "vk.name" . | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "vk.labels" . | nindent 2 }}
{{- end }}

{{- /* Empty with pools, as for print-rbac: their rights are on any node. */ -}}
{{- define "vk.nodeName" -}}
{{- if not .Values.pools }}{{ default (include "vk.name" .) .Values.nodeName }}{{ end -}}
{{- end }}

{{- define "vk.account" -}}
{{- if or .Values.serviceAccount.create .Values.serviceAccount.name -}}
{{ default (include "vk.name" .) .Values.serviceAccount.name }}
{{- else -}}
{{- fail "serviceAccount.create is false: name the service account in serviceAccount.name" -}}
{{- end -}}
{{- end }}

{{- define "vk.elects" -}}
{{- if and (not .Values.pools) (gt (int .Values.replicas) 1) }}true{{ end -}}
{{- end }}

{{- define "vk.hasConfig" -}}
{{- if .Values.provider.config }}true{{ end -}}
{{- end }}

{{- define "vk.providerConfig" -}}
{{- if kindIs "string" .Values.provider.config }}{{ .Values.provider.config }}{{ else }}{{ toYaml .Values.provider.config }}{{ end -}}
{{- end }}

{{- /* Of the provider, or all of those of pools. */ -}}
{{- define "vk.providers" -}}
{{- $names := list -}}
{{- range .Values.pools }}{{ $names = append $names (default $.Values.provider.name .provider) }}{{ end -}}
{{- if not .Values.pools }}{{ $names = list .Values.provider.name }}{{ end -}}
{{- toYaml (uniq $names) -}}
{{- end }}

{{- define "vk.image" -}}
{{- $i := .Values.image -}}
{{- if $i.digest }}{{ $i.repository }}@{{ $i.digest }}{{ else }}{{ $i.repository }}:{{ default .Chart.AppVersion $i.tag }}{{ end -}}
{{- end }}

{{- /* What the schema cannot say, or not so that people understand it. */ -}}
{{- define "vk.check" -}}
{{- range $name := include "vk.providers" . | fromYamlArray -}}
{{- if has $name (list "cri" "process") -}}
{{- fail (printf "provider %s runs pods on the machine on which virtual-kubelet runs: run the program there, not in a pod (providers/%s/README.md)" $name $name) -}}
{{- end -}}
{{- end -}}
{{- $values := dict "nodename" "nodeName" "provider" "provider.name" "provider-config" "provider.config or provider.secretName" "config" "pools" "nodes" "pools" "shards" "shards" "leader-elect" "replicas" "leader-elect-namespace" "the namespace of the release" "namespace" "watchNamespace" "port" "networkPolicy; the port is 10250" "metrics-addr" "metrics.port" "tls-cert-file" "servingCertificate.secretName" "tls-private-key-file" "servingCertificate.secretName" -}}
{{- range .Values.extraArgs -}}
{{- $flag := . | trimPrefix "--" | splitList "=" | first -}}
{{- with get $values $flag -}}
{{- fail (printf "extraArgs has --%s, which the chart gives itself: set %s" $flag .) -}}
{{- end -}}
{{- end -}}
{{- if .Values.args -}}
{{- if .Values.pools -}}
{{- fail "args and pools are both set: processes share the nodes of pools by the arguments of the chart; leave out one of the two" -}}
{{- end -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- fail (printf "args is set, and replicas is %d: processes stand by for each other by the arguments of the chart; set replicas to 1" (int .Values.replicas)) -}}
{{- end -}}
{{- if .Values.extraArgs -}}
{{- fail "args and extraArgs are both set: args are all arguments; name those of extraArgs there" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.pools .Values.nodeName -}}
{{- fail "nodeName and pools are both set: pools name their nodes themselves; leave out one of the two" -}}
{{- end -}}
{{- if and .Values.deleteNodes (not .Values.pools) -}}
{{- fail "deleteNodes is true, but there are no pools whose Nodes could be deleted" -}}
{{- end -}}
{{- if eq (int .Values.metrics.port) 10250 -}}
{{- fail "metrics.port is 10250, which is that of the kubelet API: choose another one" -}}
{{- end -}}
{{- if and .Values.metrics.monitor (not .Values.metrics.enabled) -}}
{{- fail "metrics.monitor is true, but no metrics are served: set metrics.enabled, too" -}}
{{- end -}}
{{- end }}
