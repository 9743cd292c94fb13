// Package agent runs in a machine of one pod: it proves to the node which machine it is, and
// serves a provider, such as a pod engine, to that node alone.
package agent
