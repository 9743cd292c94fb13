// Package nodepools parses a file with pools of nodes, and compares the nodes that it
// wants with those that run. It acts on neither, and reads no file itself.
package nodepools
