{{- /* A rule: API group, resources, verbs and, where there are any, names. */ -}}
{{- define "vk.rule" -}}
- apiGroups: [{{ index . 0 | quote }}]
  resources: {{ index . 1 | splitList " " | toJson }}
  verbs: {{ index . 2 | splitList " " | toJson }}
  {{- if gt (len .) 3 }}
  {{- with index . 3 }}
  resourceNames: {{ toJson . }}
  {{- end }}
  {{- end }}
{{- end }}

{{- /* A role with its binding: root, namespace (empty: of the cluster), name and rules. */ -}}
{{- define "vk.role" -}}
{{- $namespace := index . 1 -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "Role" "ClusterRole" (not (empty $namespace)) }}
metadata:
  name: {{ index . 2 | quote }}
  {{- with $namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "vk.labels" (index . 0) | nindent 4 }}
rules:
{{- range index . 3 }}
{{ . }}
{{- end }}
{{ include "vk.binding" (list (index . 0) $namespace (index . 2) (ternary "Role" "ClusterRole" (not (empty $namespace))) (index . 2)) }}
{{- end }}

{{- /* A binding: root, namespace, name, and kind and name of the role. */ -}}
{{- define "vk.binding" -}}
{{- $namespace := index . 1 -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "RoleBinding" "ClusterRoleBinding" (not (empty $namespace)) }}
metadata:
  name: {{ index . 2 | quote }}
  {{- with $namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "vk.labels" (index . 0) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 3 }}
  name: {{ index . 4 | quote }}
subjects:
{{- if include "vk.identity" (index . 0) }}
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: {{ printf "system:node:%s" (include "vk.nodeName" (index . 0)) | quote }}
{{- else }}
- kind: ServiceAccount
  name: {{ include "vk.account" (index . 0) | quote }}
  namespace: {{ (index . 0).Release.Namespace | quote }}
{{- end }}
{{- end }}
