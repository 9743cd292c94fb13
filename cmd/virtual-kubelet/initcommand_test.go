//go:build !chosen_providers

package main

import (
	"reflect"
	"testing"
)

// A node of a provider that is served has the rights of one of provider remote, also in a
// binary without that.
func TestInitOfRemoteHasItsRights(t *testing.T) {
	objects := func(o rbacOptions) any {
		o.nodeName, o.electNamespace, o.account = "own", "kube-system", "kube-system/own"
		if err := o.complete(); err != nil {
			t.Fatal(err)
		}
		return o.objects()
	}
	if got, want := objects(rbacOptions{needs: kindRights["remote"]}), objects(rbacOptions{provider: "remote"}); !reflect.DeepEqual(got, want) {
		t.Errorf("init writes %v, want %v", got, want)
	}
}
