package nodepools

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// index stands for a node's number in the pattern of names.
const index = "{index}"

// checkName checks the name of the file.
func (e *expansion) checkName() {
	at := field.NewPath("name")
	if e.file.Name == "" && e.file.DeleteNodes {
		e.add(field.Required(at, "deleteNodes identifies the Nodes of this file by it: choose one that no other file in the cluster has"))
	}
	for _, problem := range validation.IsValidLabelValue(e.file.Name) {
		e.invalid(at, e.file.Name, "%s", problem)
	}
}

// names returns the names of the pool's nodes; none if there is an error.
func (e *expansion) names(p *pool, at *field.Path) []string {
	if p.Name == "" {
		e.add(field.Required(at.Child("name"), "give the pool a name"))
		return nil
	}
	if e.pools[p.Name] {
		e.invalid(at.Child("name"), p.Name, "another pool has this name: choose another one")
		return nil
	}
	e.pools[p.Name] = true
	if p.Count == nil {
		e.add(field.Required(at.Child("count"), "give the number of nodes"))
		return nil
	}
	if *p.Count < 0 || *p.Count > MaxNodes-len(e.wanted) {
		e.invalid(at.Child("count"), *p.Count, "write a number from 0 on, such that all pools together have no more than %d nodes", MaxNodes)
		return nil
	}
	if p.NodeName == "" {
		return e.expand(p.Name+"-"+index, *p.Count, at.Child("name"))
	}
	return e.expand(p.NodeName, *p.Count, at.Child("nodeName"))
}

// NameProblems returns why a node cannot have a name, which is also that of its host, a label;
// none if it can.
func NameProblems(name string) []string {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return problems
	}
	return validation.IsValidLabelValue(name)
}

// expand makes names of a pattern.
func (e *expansion) expand(pattern string, count int, at *field.Path) (names []string) {
	if problems := NameProblems(strings.ReplaceAll(pattern, index, strconv.Itoa(max(0, count-1)))); len(problems) > 0 {
		e.invalid(at, pattern, "nodes cannot have such names: %s", strings.Join(problems, "; "))
		return nil
	}
	if !strings.Contains(pattern, index) && count > 1 {
		e.invalid(at, pattern, "%d nodes would have this name: write %s where their numbers go", count, index)
		return nil
	}
	for i := range count {
		name := strings.ReplaceAll(pattern, index, strconv.Itoa(i))
		if e.nodes[name] {
			e.invalid(at, name, "another pool has a node of this name: choose another one")
			return nil
		}
		e.nodes[name] = true
		names = append(names, name)
	}
	return names
}
