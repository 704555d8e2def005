{{- define "kgharvest.name" -}}
{{- if contains "kgharvest" .Release.Name }}{{ .Release.Name | trunc 30 | trimSuffix "-" }}{{ else }}{{ printf "%s-kgharvest" .Release.Name | trunc 30 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "kgharvest.selector" -}}
app.kubernetes.io/name: kgharvest
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kgharvest.labels" -}}
{{ include "kgharvest.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "kgharvest.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "kgharvest.cudaImage" -}}
{{ .Values.cudaImage.repository }}:{{ .Values.cudaImage.tag | default (printf "%s-cuda" .Chart.AppVersion) }}
{{- end }}

{{- define "kgharvest.secret" -}}
{{ .Values.existingSecret | default (include "kgharvest.name" .) }}
{{- end }}

{{/* Settings of every pod: user and permissions. */}}
{{- define "kgharvest.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "kgharvest.volumes" -}}
- name: tmp
  emptyDir: {}
- name: data
  {{- if .Values.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim | default (include "kgharvest.name" .) | quote }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}

{{/* Settings of every container: permissions, secrets, and folders. */}}
{{- define "kgharvest.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy | default "IfNotPresent" }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
envFrom:
  - secretRef:
      name: {{ include "kgharvest.secret" . | quote }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  - name: data
    mountPath: /var/lib/kgharvest
{{- end }}

{{- define "kgharvest.settings" -}}
- name: KGHARVEST_BASE_URL
  value: {{ .Values.baseUrl | quote }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
