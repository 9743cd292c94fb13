package podgroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
)

// Features are what a service can do. A pod that needs something else is refused before
// anything is created for it, with one event that names all of it.
type Features struct {
	// Fields are the fields of a pod's spec that the service has, as paths such as
	// "containers.livenessProbe.exec", each with all that is below it; "-" before a path
	// leaves out something below another: "-containers.livenessProbe.httpGet.host". The
	// longest path that fits counts. "containers" stands for init containers too, where
	// "initContainers" is among the fields; paths that begin with that are about them
	// alone. Volumes go by their kind: "volumes.configMap". A value is named after an equal
	// sign: "restartPolicy=Never". Fields that every service has, because they are the
	// scheduler's, the API server's or this package's (FieldsOfAll), need not be named.
	Fields []string
	// Ignored are fields, in the same form, that the service does not have, and without
	// which pods run all the same, though with less than they ask for: an event says so.
	// Some are ignored for all services: see docs/podgroup.md.
	Ignored []string
	// DaemonSets: pods of DaemonSets are run. They are meant for machines.
	DaemonSets bool
	// Renew are the restart policies with which an update of files does not harm
	// containers that run. The files of other pods stay as they were created.
	Renew []corev1.RestartPolicy
	// TokenLifetime is how long the tokens of a pod's service account are valid at least:
	// for services that cannot be given another one. Defaults to what pods ask for.
	TokenLifetime time.Duration
	// Containers and Volumes are the most that a unit may have, FileBytes the size of a
	// file in a volume, and FilesBytes that of all files; zero is no limit.
	Containers, Volumes, FileBytes, FilesBytes int
	// Check, if it is set, returns what else of a pod the service cannot do, a short text
	// for each. It reads nothing but the pod.
	Check func(pod *corev1.Pod) []string
	// Ignores, if it is set, returns what else of a pod is ignored, as Check does.
	Ignores func(pod *corev1.Pod) []string
}

// fieldsOfAll are fields that are the scheduler's, the API server's, the pod controller's or
// this package's matter.
var fieldsOfAll = []string{
	"nodeName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulerName", "schedulingGates",
	"priority", "priorityClassName", "preemptionPolicy", "overhead", "os", "readinessGates", "enableServiceLinks",
	"serviceAccount", "serviceAccountName", "automountServiceAccountToken", "imagePullSecrets",
	"terminationGracePeriodSeconds", "activeDeadlineSeconds", "dnsPolicy", "resources",
	"subdomain", // its DNS records are made of the pod's address
	"volumes.name",
	"containers.name", "containers.image", "containers.imagePullPolicy", "containers.command", "containers.args", "containers.workingDir",
	"containers.env", "-containers.env.valueFrom.fileKeyRef", "containers.envFrom", "containers.ports", "-containers.ports.hostPort", "-containers.ports.hostIP",
	"containers.resources", "-containers.resources.claims", "containers.resizePolicy",
	"containers.volumeMounts", "-containers.volumeMounts.subPathExpr", "-containers.volumeMounts.mountPropagation", "-containers.volumeMounts.recursiveReadOnly",
	"containers.volumeMounts.mountPropagation=None", "containers.volumeMounts.recursiveReadOnly=Disabled",
	"containers.terminationMessagePath=/dev/termination-log", "containers.terminationMessagePolicy=File",
}

// ignorable are fields without which a pod runs, though with less than it asks for. Where
// the service does not have them an event says so.
var ignorable = []string{
	"hostname", // which each pod of a StatefulSet has
	"securityContext.seccompProfile", "securityContext.appArmorProfile", "securityContext.seLinuxOptions", "securityContext.seLinuxChangePolicy",
	"securityContext.fsGroup", "securityContext.fsGroupChangePolicy", "securityContext.supplementalGroups", "securityContext.supplementalGroupsPolicy",
	"securityContext.runAsNonRoot",
	"containers.securityContext.seccompProfile", "containers.securityContext.appArmorProfile", "containers.securityContext.seLinuxOptions",
	"containers.securityContext.allowPrivilegeEscalation", "containers.securityContext.capabilities.drop", "containers.securityContext.runAsNonRoot",
	"containers.terminationMessagePath", "containers.terminationMessagePolicy",
	"containers.stdin", "containers.stdinOnce", "containers.tty",
}

// validate returns an error that names all mistakes.
func (f *Features) validate() error {
	var wrong []error
	for _, field := range slices.Concat(f.Fields, f.Ignored) {
		path, _, _ := strings.Cut(strings.TrimPrefix(field, "-"), "=")
		if !isField(path) {
			wrong = append(wrong, fmt.Errorf("Features.Fields or Ignored: a pod's spec has no field %q", path))
		}
	}
	return errors.Join(wrong...)
}

// Unsupported returns what of a pod the service does not have, a short text for each: that for
// which CreatePod refuses the pod, and that without which it runs all the same. It looks at
// the pod alone, not at its files or at what the service has left.
func (p *Provider) Unsupported(pod *corev1.Pod) (missing, ignored []string) {
	f := &p.opts.Features
	missing, ignored = f.unsupported(pod)
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" && !f.DaemonSets {
		missing = append(missing, "pods of a DaemonSet, such as "+owner.Name)
	}
	if n := len(pod.Spec.InitContainers) + len(pod.Spec.Containers); f.Containers > 0 && n > f.Containers {
		missing = append(missing, fmt.Sprintf("%d containers, more than %d", n, f.Containers))
	}
	if n := len(pod.Spec.Volumes); f.Volumes > 0 && n > f.Volumes {
		missing = append(missing, fmt.Sprintf("%d volumes, more than %d", n, f.Volumes))
	}
	if f.Check != nil {
		missing = append(missing, f.Check(pod)...)
	}
	if f.Ignores != nil {
		ignored = append(ignored, f.Ignores(pod)...)
	}
	return missing, ignored
}

// check returns an error that names all that the service cannot do of what a pod needs, and
// else what it ignores. The error is permanent.
func (p *Provider) check(pod *corev1.Pod) (ignored []string, err error) {
	missing, ignored := p.Unsupported(pod)
	if len(missing) == 0 {
		return ignored, nil
	}
	return nil, NotSupportedf("%s does not have: %s", p.opts.Service, strings.Join(missing, "; "))
}

// checkFiles returns a permanent error if files are larger than the service takes.
func (f *Features) checkFiles(files map[string]volume.Files) error {
	var large []string
	total := 0
	for name, contents := range files {
		for path, file := range contents {
			total += len(file.Data)
			if f.FileBytes > 0 && len(file.Data) > f.FileBytes {
				large = append(large, fmt.Sprintf("file %s of volume %s has %d bytes, more than %d", path, name, len(file.Data), f.FileBytes))
			}
		}
	}
	if f.FilesBytes > 0 && total > f.FilesBytes {
		large = append(large, fmt.Sprintf("the files of all volumes have %d bytes, more than %d", total, f.FilesBytes))
	}
	if len(large) == 0 {
		return nil
	}
	slices.Sort(large)
	return NotSupportedf("%s", strings.Join(large, "; "))
}

// reads reports whether a volume has contents that the service takes.
func (f *Features) reads(v *corev1.Volume) bool {
	return volume.HasContents(v) && newFieldSet(f.Fields).has("volumes."+volume.Kind(v), "")
}

// renews reports whether the files of a pod are renewed.
func (f *Features) renews(pod *corev1.Pod) bool {
	return slices.Contains(f.Renew, pod.Spec.RestartPolicy)
}

// unsupported returns the fields of a pod's spec that the service does not have: those
// without which the pod must not run, and those that are ignored.
func (f *Features) unsupported(pod *corev1.Pod) (missing, ignored []string) {
	text, err := json.Marshal(&pod.Spec)
	var spec map[string]any
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		return []string{"a spec that cannot be read: " + err.Error()}, nil
	}
	ignore := slices.Concat(ignorable, f.Ignored)
	for _, path := range ignore { // of init containers too, where the service has them
		if rest, ok := strings.CutPrefix(path, "containers."); ok {
			ignore = append(ignore, "initContainers."+rest)
		}
	}
	w := fieldWalk{had: newFieldSet(slices.Concat(fieldsOfAll, f.Fields)), ignorable: newFieldSet(ignore)}
	w.object(spec, "", "")
	slices.Sort(w.missing)
	slices.Sort(w.ignored)
	return slices.Compact(w.missing), slices.Compact(w.ignored)
}

// fieldSet are paths of fields: whether they, and what is below them, are in the set.
type fieldSet map[string]bool

func newFieldSet(fields []string) fieldSet {
	set := fieldSet{}
	for _, field := range fields {
		path, out := strings.CutPrefix(field, "-")
		set[path] = !out
	}
	return set
}

// has reports whether a field with a value is in the set, by the longest path that fits.
// What holds of containers holds of init containers, if these are in the set; but not
// their restartPolicy, which makes sidecars of them.
func (s fieldSet) has(path, value string) bool {
	rest, ofInit := strings.CutPrefix(path, "initContainers.")
	if ofInit && rest != "restartPolicy" {
		if in, ok := s.longest(path, value, "initContainers"); ok {
			return in
		}
		if !s["initContainers"] {
			return false
		}
		path = "containers." + rest
	} else if ofInit {
		return s[path]
	}
	in, _ := s.longest(path, value, "")
	return in
}

// longest looks up a path, and what is above it as far as root, which is left out.
func (s fieldSet) longest(path, value, root string) (in, ok bool) {
	if in, ok := s[path+"="+value]; ok {
		return in, true
	}
	for path != root {
		if in, ok := s[path]; ok {
			return in, true
		}
		path = path[:max(0, strings.LastIndexByte(path, '.'))]
	}
	return false, false
}

// differs reports whether the set says something of fields below a path.
func (s fieldSet) differs(path string) bool {
	if path == "" || path == "initContainers" {
		return true
	}
	paths := []string{path + ".", path + "="}
	if rest, ofInit := strings.CutPrefix(path, "initContainers."); ofInit {
		paths = append(paths, "containers."+rest+".", "containers."+rest+"=")
	}
	for known := range s {
		if slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(known, p) }) {
			return true
		}
	}
	return false
}

// fieldWalk collects the fields of a spec that a service does not have.
type fieldWalk struct {
	had, ignorable   fieldSet
	missing, ignored []string
}

// object visits an object at a path. shown is the path with the names of containers and
// volumes.
func (w *fieldWalk) object(object map[string]any, path, shown string) {
	isAbsent := path == "initContainers" && !w.had[path]
	if isAbsent || !w.had.differs(path) && !w.ignorable.differs(path) {
		if isSet(object, path) {
			w.decide(path, shown, "")
		}
		return
	}
	for key, value := range object {
		w.value(value, strings.TrimPrefix(path+"."+key, "."), strings.TrimPrefix(shown+"."+key, "."))
	}
}

func (w *fieldWalk) value(value any, path, shown string) {
	switch value := value.(type) {
	case map[string]any:
		w.object(value, path, shown)
	case []any:
		for _, element := range value {
			at := shown
			if object, ok := element.(map[string]any); ok && object["name"] != nil {
				at = fmt.Sprintf("%s[%s]", shown, object["name"])
			}
			if path == "volumes" && isAPIAccess(element) && !w.had.has("volumes.projected", "") {
				w.ignored = append(w.ignored, at+".projected")
				continue
			}
			w.value(element, path, at)
		}
	default:
		if isSet(value, path) {
			w.decide(path, shown, fmt.Sprint(value))
		}
	}
}

// isAPIAccess reports whether a volume is the one with a token that the API server adds to
// each pod, by the name that it gives it.
func isAPIAccess(v any) bool {
	object, _ := v.(map[string]any)
	name, _ := object["name"].(string)
	return object["projected"] != nil && strings.HasPrefix(name, "kube-api-access-")
}

// decide decides about a field.
func (w *fieldWalk) decide(path, shown, value string) {
	switch {
	case w.had.has(path, value):
	case w.ignorable.has(path, value):
		w.ignored = append(w.ignored, shown)
	default:
		if showsValue(path) {
			shown += " " + value
		}
		w.missing = append(w.missing, shown)
	}
}

// isSet reports whether a value means something. False is a default, but for two fields,
// and so is an empty object, but for the kind of a volume.
func isSet(value any, path string) bool {
	switch value := value.(type) {
	case nil:
		return false
	case bool:
		return value || path == "hostUsers" || strings.HasSuffix(path, ".allowPrivilegeEscalation")
	case []any:
		return slices.ContainsFunc(value, func(element any) bool { return isSet(element, path) })
	case map[string]any:
		for key, inner := range value {
			if isSet(inner, path+"."+key) {
				return true
			}
		}
		return len(value) == 0 && strings.HasPrefix(path, "volumes.")
	}
	return true
}

// showsValue reports whether a field's value belongs into a message: it is no secret, and the field alone means little.
func showsValue(path string) bool {
	last := path[strings.LastIndexByte(path, '.')+1:]
	return strings.HasSuffix(last, "olicy") || slices.Contains([]string{"add", "stopSignal", "hostPort", "runAsUser", "runAsGroup", "mountPropagation", "protocol"}, last)
}

// isField reports whether a pod's spec has a field.
func isField(path string) bool {
	t := reflect.TypeFor[corev1.PodSpec]()
	for _, name := range strings.Split(path, ".") {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Map:
			return true
		case reflect.Struct:
		default:
			return false
		}
		field, ok := fieldNamed(t, name)
		if !ok {
			return false
		}
		t = field
	}
	return true
}

// fieldNamed returns the type of the field that has a name in JSON.
func fieldNamed(t reflect.Type, name string) (reflect.Type, bool) {
	for field := range t.Fields() {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == name {
			return field.Type, true
		}
		if field.Anonymous && tag == "" { // its fields are those of t
			if inner, ok := fieldNamed(field.Type, name); ok {
				return inner, true
			}
		}
	}
	return nil, false
}
