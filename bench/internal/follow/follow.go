// Package follow watches objects without a break: the API server ends watches
// that fall behind, as many do while a thousand pods are created at once, and
// a wait before the next one would be measured too.
package follow

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Watcher is a kind of object.
type Watcher interface {
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// Watch calls handle for each event after options.ResourceVersion, bookmarks
// aside, until it says that it is done. It fails when the API server has an error
// to say, and when ctx ends.
func Watch(ctx context.Context, objects Watcher, options metav1.ListOptions, handle func(watch.Event) (done bool)) error {
	options.AllowWatchBookmarks = true
	for {
		watcher, err := objects.Watch(ctx, options)
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		done, err := follow(watcher, &options.ResourceVersion, handle)
		watcher.Stop()
		if done || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// follow handles the events of one watch, and notes up to which version.
func follow(watcher watch.Interface, version *string, handle func(watch.Event) bool) (done bool, err error) {
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			return false, fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return false, fmt.Errorf("watch: %w", err)
		}
		*version = object.GetResourceVersion()
		if event.Type != watch.Bookmark && handle(event) {
			return true, nil
		}
	}
	return false, nil
}
