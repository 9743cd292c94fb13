package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var volumeChecks = []Check{
	{Name: "volume-contents", Title: "volumes have what their ConfigMap, Secret, pod or projection has", Needs: []Capability{Volumes, Commands}, run: checkVolumeContents},
	{Name: "volume-modes", Title: "files of volumes have the modes that are asked for", Needs: []Capability{Volumes, Commands}, run: checkVolumeModes},
	{Name: "volume-emptydir", Title: "containers share an emptyDir", Needs: []Capability{Volumes, Commands}, run: checkEmptyDir},
	{Name: "volume-subpath", Title: "a container can have a part of a volume", Needs: []Capability{Volumes, Commands}, run: checkSubPath},
	{Name: "volume-nested", Title: "a part of a volume can be mounted in another volume", Needs: []Capability{Volumes, Commands}, run: checkNestedVolume},
	{Name: "volume-update", Title: "a change of a ConfigMap arrives in a volume", Needs: []Capability{Volumes, Commands}, run: checkVolumeUpdate},
	{Name: "volume-missing", Title: "a pod waits for a ConfigMap that a volume needs, and an event says so", Needs: []Capability{Volumes}, run: checkVolumeMissing},
	{Name: "volume-unsupported", Title: "a volume that the node cannot have gives an event, and no container is started", Needs: []Capability{Volumes}, run: checkUnsupportedVolume},
}

// mounted is a mount path for a script. Nodes that cannot mount anything say by a
// variable of containers below which directory their volumes are.
func mounted(path string) string { return "${VIRTUAL_KUBELET_MOUNTS}" + path }

// expectFile is a script that fails unless a file of a volume has a content.
func expectFile(path, content string) string { return expect(`"$(cat `+mounted(path)+`)"`, content) }

func configMapVolume(name, configMap string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
	}}}
}

func checkVolumeContents(ctx context.Context, s *Scope) error {
	configMap, err := s.CreateConfigMap(ctx, "", map[string]string{"colour": "blue", "size": "big"})
	if err != nil {
		return err
	}
	secret, err := s.CreateSecret(ctx, "", map[string]string{"word": "xyzzy"})
	if err != nil {
		return err
	}
	labels := []corev1.DownwardAPIVolumeFile{{Path: "label", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['colour']"}}}
	pod := s.job(expectFile("/config/colour", "blue") + expectFile("/config/size", "big") +
		expectFile("/secret/word", "xyzzy") + expectFile("/downward/label", "green") +
		expectFile("/all/deep/down/colour", "blue") + expect(`"$(ls `+mounted("/all/deep/down")+`)"`, "colour") +
		expectFile("/all/word", "xyzzy") + expectFile("/all/label", "green"))
	pod.Labels["colour"] = "green"
	pod.Spec.Volumes = []corev1.Volume{
		configMapVolume("config", configMap.Name),
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret.Name}}},
		{Name: "downward", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: labels}}},
		{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: configMap.Name},
				Items:                []corev1.KeyToPath{{Key: "colour", Path: "deep/down/colour"}},
			}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret.Name}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: labels}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: missingName()}, Optional: ptr.To(true)}},
		}}}},
	}
	mountAll(pod)
	_, err = s.proves(ctx, pod)
	return err
}

// mountAll mounts each volume at its name in the root directory.
func mountAll(pod *corev1.Pod) {
	for i := range pod.Spec.Containers {
		for _, volume := range pod.Spec.Volumes {
			mount := corev1.VolumeMount{Name: volume.Name, MountPath: "/" + volume.Name}
			pod.Spec.Containers[i].VolumeMounts = append(pod.Spec.Containers[i].VolumeMounts, mount)
		}
	}
}

func checkVolumeModes(ctx context.Context, s *Scope) error {
	configMap, err := s.CreateConfigMap(ctx, "", map[string]string{"script": "#!/bin/sh\necho it runs\n", "text": "words"})
	if err != nil {
		return err
	}
	mode := func(file string) string { return `"$(ls -lL ` + mounted("/config/"+file) + ` | cut -c 1-10)"` }
	pod := s.job(expect(mode("script"), "-r-xr-xr-x") + expect(mode("text"), "-rw-r--r--"))
	volume := configMapVolume("config", configMap.Name)
	volume.ConfigMap.DefaultMode = ptr.To[int32](0o644)
	volume.ConfigMap.Items = []corev1.KeyToPath{{Key: "script", Path: "script", Mode: ptr.To[int32](0o555)}, {Key: "text", Path: "text"}}
	pod.Spec.Volumes = []corev1.Volume{volume}
	mountAll(pod)
	_, err = s.proves(ctx, pod)
	return err
}

func checkEmptyDir(ctx context.Context, s *Scope) error {
	pod := s.job("")
	pod.Spec.Containers = []corev1.Container{
		s.container("writer", "cd "+mounted("/shared")+"; echo hello > draft && mv draft letter && until [ -e read ]; do sleep 0.1; done"),
		s.container("reader", "cd "+mounted("/shared")+"; until [ -e letter ]; do sleep 0.1; done\n"+expect(`"$(cat letter)"`, "hello")+"touch read"),
	}
	pod.Spec.Volumes = []corev1.Volume{scratchVolume("shared")}
	mountAll(pod)
	_, err := s.proves(ctx, pod)
	return err
}

func checkSubPath(ctx context.Context, s *Scope) error {
	configMap, err := s.CreateConfigMap(ctx, "", map[string]string{"colour": "blue", "size": "big"})
	if err != nil {
		return err
	}
	pod := s.job(expectFile("/alone/colour", "blue") + expect(`"$(ls `+mounted("/alone")+`)"`, "colour") +
		"echo hello > " + mounted("/part/letter") + "\n" + expectFile("/whole/deep/down/letter", "hello"))
	pod.Spec.Volumes = []corev1.Volume{configMapVolume("config", configMap.Name), scratchVolume("scratch")}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "config", MountPath: "/alone/colour", SubPath: "colour"},
		{Name: "scratch", MountPath: "/part", SubPath: "deep/down"},
		{Name: "scratch", MountPath: "/whole"},
	}
	_, err = s.proves(ctx, pod)
	return err
}

func scratchVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func checkNestedVolume(ctx context.Context, s *Scope) error {
	configMap, err := s.CreateConfigMap(ctx, "", map[string]string{"colour": "blue", "size": "big"})
	if err != nil {
		return err
	}
	pod := s.job(expectFile("/one/colour", "blue") + expect(`"$(ls `+mounted("/one")+`)"`, "colour"))
	pod.Spec.Volumes = []corev1.Volume{configMapVolume("config", configMap.Name), scratchVolume("one")}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "one", MountPath: "/one"},
		{Name: "config", MountPath: "/one/colour", SubPath: "colour"},
	}
	_, err = s.proves(ctx, pod)
	return err
}

func checkVolumeUpdate(ctx context.Context, s *Scope) error {
	configMap, err := s.CreateConfigMap(ctx, "", map[string]string{"colour": "blue"})
	if err != nil {
		return err
	}
	pod := s.job(`cd ` + mounted("/config") + ` && first=$(cat colour) && [ -n "$first" ] || exit 1
until [ "$(cat colour)" != "$first" ]; do sleep 0.2; done; exit ` + strconv.Itoa(proven))
	pod.Spec.Volumes = []corev1.Volume{configMapVolume("config", configMap.Name)}
	mountAll(pod)
	if pod, err = s.createAnd(ctx, pod, "runs", Running); err != nil {
		return err
	}
	// The first change may come before the container has looked at all.
	for change := 1; ; change++ {
		configMap.Data["colour"] = fmt.Sprintf("green %d", change)
		if configMap, err = s.Client.CoreV1().ConfigMaps(s.Namespace).Update(ctx, configMap, metav1.UpdateOptions{}); err != nil {
			return err
		}
		soon, cancel := context.WithTimeout(ctx, 20*time.Second)
		seen, err := s.Follow(soon, pod, "has seen the change, and ends", nil, exists(ended))
		again := soon.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			return haveProven(seen)
		}
		if !again {
			return err
		}
	}
}

func checkVolumeMissing(ctx context.Context, s *Scope) error {
	name := missingName()
	pod := s.Pod(s.LongRunning("main"))
	pod.Spec.Volumes = []corev1.Volume{configMapVolume("config", name)}
	mountAll(pod)
	pod, err := s.Create(ctx, pod)
	if err != nil {
		return err
	}
	if err := s.WaitMentioned(ctx, pod, name); err != nil {
		return err
	}
	if _, err := s.CreateConfigMap(ctx, name, map[string]string{"colour": "blue"}); err != nil {
		return err
	}
	_, err = s.Follow(ctx, pod, "runs, now that its volume can be made", nil, Running)
	return err
}

// checkUnsupportedVolume asks for a volume of a driver that nobody has.
func checkUnsupportedVolume(ctx context.Context, s *Scope) error {
	const driver = "nodecheck.example.com"
	pod := s.Pod(s.LongRunning("main"))
	pod.Spec.Volumes = []corev1.Volume{{Name: "strange", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driver}}}}
	mountAll(pod)
	pod, err := s.Create(ctx, pod)
	if err != nil {
		return err
	}
	err = s.FollowEvents(ctx, pod, "a warning that names the volume or its driver", func(event *corev1.Event) bool {
		return event.Type == corev1.EventTypeWarning && (strings.Contains(event.Message, "strange") || strings.Contains(event.Message, driver))
	})
	if err != nil {
		return err
	}
	now, err := s.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.seen(now)
	if now.Status.Phase == corev1.PodRunning || now.Status.Phase == corev1.PodSucceeded {
		return fmt.Errorf("pod %s is %s without its volume", pod.Name, now.Status.Phase)
	}
	return noContainerStarted(now)
}

var tokenChecks = []Check{
	{Name: "token", Title: "a projected token is one of the pod's service account", Needs: []Capability{Tokens, Commands, Exec}, run: checkToken},
}

// checkToken asks the API server who it is that has the token.
func checkToken(ctx context.Context, s *Scope) error {
	pod := s.Pod(s.LongRunning("main"))
	pod.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](600)}}},
	}}}}
	mountAll(pod)
	pod, err := s.createAnd(ctx, pod, "runs", Running)
	if err != nil {
		return err
	}
	out, err := s.exec(ctx, pod, "main", nil, false, s.inShell("cat "+mounted("/token/token"))...)
	if err != nil {
		return fmt.Errorf("read the token: %w (%s)", err, out.stderr)
	}
	user, err := s.whoIs(ctx, strings.TrimSpace(out.stdout))
	if err != nil {
		return err
	}
	var problems []error
	if want := "system:serviceaccount:" + s.Namespace + ":default"; user.Username != want {
		problems = append(problems, fmt.Errorf("the token is that of %q, not of %q", user.Username, want))
	}
	if of := user.Extra["authentication.kubernetes.io/pod-uid"]; len(of) != 1 || of[0] != string(pod.UID) {
		problems = append(problems, fmt.Errorf("the token is bound to the pods %q, not to %q", of, pod.UID))
	}
	return errors.Join(problems...)
}
