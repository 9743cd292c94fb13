package wire

import (
	"reflect"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/podspec/volume"
	pb "github.com/virtual-kubelet/virtual-kubelet/providers/remote/v1alpha1"
)

func TestFilesStayAsTheyAre(t *testing.T) {
	uid := int64(1000)
	files := volume.Files{"a/b": {Data: []byte{0, 255}, Mode: 0o400}, "token": {Data: []byte("x"), Mode: 0o600, UID: &uid}}
	got, err := ToFiles([]*pb.Volume{FromFiles("v", files), FromFiles("empty", nil)})
	if want := map[string]volume.Files{"v": files, "empty": {}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
