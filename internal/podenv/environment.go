package podenv

import corev1 "k8s.io/api/core/v1"

// environment is a container's variables in the order of their definition, each
// name once: a later definition takes the place of an earlier one.
type environment struct {
	vars  []corev1.EnvVar
	index map[string]int // where in vars the name was defined last
}

func newEnvironment(size int) *environment {
	return &environment{
		vars:  make([]corev1.EnvVar, 0, size),
		index: make(map[string]int, size),
	}
}

func (e *environment) set(v corev1.EnvVar) {
	e.index[v.Name] = len(e.vars)
	e.vars = append(e.vars, v)
}

// lookup returns the value of a variable, if it is known by now.
func (e *environment) lookup(name string) (string, bool) {
	i, ok := e.index[name]
	if !ok || e.vars[i].ValueFrom != nil {
		return "", false
	}
	return e.vars[i].Value, true
}

// list returns the variables. No definition may follow.
func (e *environment) list() []corev1.EnvVar {
	if len(e.vars) == 0 {
		return nil
	}
	list := make([]corev1.EnvVar, 0, len(e.index))
	for i, v := range e.vars {
		if e.index[v.Name] == i {
			list = append(list, v)
		}
	}
	return list
}
