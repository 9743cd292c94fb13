{{- /* The Secret of a node with an identity of its own; empty with the service account's. */ -}}
{{- define "vk.identity" -}}
{{- with .Values.nodeIdentity }}{{ default .kubeconfigSecretName .bootstrapSecretName }}{{ end -}}
{{- end }}

{{- /* Whether the process keeps certificates that the cluster signs. */ -}}
{{- define "vk.keepsCertificates" -}}
{{- if or .Values.nodeIdentity.bootstrapSecretName .Values.servingCertificate.fromCluster }}true{{ end -}}
{{- end }}

{{- define "vk.checkIdentity" -}}
{{- $identity := include "vk.identity" . -}}
{{- if and .Values.nodeIdentity.bootstrapSecretName .Values.nodeIdentity.kubeconfigSecretName -}}
{{- fail "nodeIdentity has bootstrapSecretName and kubeconfigSecretName: leave out one of the two" -}}
{{- end -}}
{{- if and $identity .Values.pools -}}
{{- fail "nodeIdentity is of one node, and there are pools: leave out one of the two" -}}
{{- end -}}
{{- if and $identity (gt (int .Values.replicas) 1) -}}
{{- fail (printf "nodeIdentity is given and replicas is %d: set replicas to 1, since a node with an identity of its own may not elect a leader" (int .Values.replicas)) -}}
{{- end -}}
{{- if .Values.servingCertificate.fromCluster -}}
{{- if .Values.servingCertificate.secretName -}}
{{- fail "servingCertificate has secretName and fromCluster: leave out one of the two" -}}
{{- end -}}
{{- if not $identity -}}
{{- fail "servingCertificate.fromCluster is true without nodeIdentity: a serving certificate is requested by the node itself, so give its identity, too" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.nodeIdentity.certificates (not (include "vk.keepsCertificates" .)) -}}
{{- fail "nodeIdentity.certificates is given, but no certificates are requested that could be kept there: set nodeIdentity.bootstrapSecretName or servingCertificate.fromCluster, too" -}}
{{- end -}}
{{- if and $identity .Values.args (not (contains "/etc/virtual-kubelet-identity/kubeconfig" (join " " .Values.args))) -}}
{{- fail "args and nodeIdentity are set, and no argument is for the kubeconfig of the node, without which the process has no credentials: name /etc/virtual-kubelet-identity/kubeconfig there" -}}
{{- end -}}
{{- $flags := dict -}}
{{- if $identity }}{{ $flags = dict "kubeconfig" "nodeIdentity.kubeconfigSecretName" "bootstrap-kubeconfig" "nodeIdentity.bootstrapSecretName" }}{{ end -}}
{{- if include "vk.keepsCertificates" . }}{{ $_ := set $flags "cert-dir" "nodeIdentity.certificates" }}{{ end -}}
{{- if $identity }}{{ $_ := set $flags "serving-certificate" "servingCertificate" }}{{ end -}}
{{- range .Values.extraArgs -}}
{{- $flag := . | trimPrefix "--" | splitList "=" | first -}}
{{- with get $flags $flag -}}
{{- fail (printf "extraArgs has --%s, which the chart gives itself: set %s" $flag .) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "vk.identityArgs" -}}
{{- if .Values.nodeIdentity.bootstrapSecretName }}
- --bootstrap-kubeconfig=/etc/virtual-kubelet-identity/kubeconfig
{{- else if .Values.nodeIdentity.kubeconfigSecretName }}
- --kubeconfig=/etc/virtual-kubelet-identity/kubeconfig
{{- end }}
{{- if include "vk.keepsCertificates" . }}
- --cert-dir=/var/lib/virtual-kubelet/pki
{{- end }}
{{- if .Values.servingCertificate.fromCluster }}
- --serving-certificate=cluster
{{- end }}
{{- end }}

{{- define "vk.identityMounts" -}}
{{- if include "vk.identity" . }}
- name: identity
  mountPath: /etc/virtual-kubelet-identity
  readOnly: true
{{- end }}
{{- if include "vk.keepsCertificates" . }}
- name: certificates
  mountPath: /var/lib/virtual-kubelet
{{- end }}
{{- end }}

{{- define "vk.identityVolumes" -}}
{{- with include "vk.identity" . }}
- name: identity
  secret:
    secretName: {{ . | quote }}
{{- end }}
{{- if include "vk.keepsCertificates" . }}
- name: certificates
  {{- toYaml (default (dict "emptyDir" dict) .Values.nodeIdentity.certificates) | nindent 2 }}
{{- end }}
{{- end }}
