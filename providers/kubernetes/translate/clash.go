package translate

import "fmt"

// Clash is the error of an object whose place in the remote cluster is taken by one
// that is not ours.
type Clash struct {
	// Kind, Namespace and Name are those of the remote object.
	Kind, Namespace, Name string
}

// Error says which object it is, and what to do.
func (c Clash) Error() string {
	return fmt.Sprintf("the remote cluster has a %s %s/%s already, which does not come from this node and is left alone: remove or rename it", c.Kind, c.Namespace, c.Name)
}
