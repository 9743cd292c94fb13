package settings

import (
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

var step = regexp.MustCompile(`([A-Za-z][\w-]*)|\[([^\]]*)\]`)

// LineOf returns the line of what a path such as pools[front].count means in a YAML document:
// of its last part that is there. An item of a list is found by its number, or by its name.
// It returns zero for what is no YAML.
func LineOf(text []byte, path string) int {
	d := parse(text, 1)
	if d == nil || d.root == nil {
		return 0
	}
	node, line := d.root, d.root.Line
	for _, match := range step.FindAllStringSubmatch(path, -1) {
		var next *yaml.Node
		if match[1] != "" {
			next, line = childOf(node, match[1], line)
		} else if node.Kind == yaml.SequenceNode {
			for i, item := range node.Content {
				name, _ := childOf(item, "name", 0)
				if strconv.Itoa(i) == match[2] || name != nil && name.Value == match[2] {
					next, line = item, item.Line
					break
				}
			}
		} else {
			next, line = childOf(node, match[2], line)
		}
		if next == nil {
			break
		}
		node = resolve(next)
	}
	return line
}

// childOf returns the field of an object and the line of its name; otherwise is the line if
// there is none.
func childOf(node *yaml.Node, name string, otherwise int) (*yaml.Node, int) {
	if node.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	}
	return nil, otherwise
}
