// Package fleet keeps the nodes of one process in line with what is wanted: a fixed
// list of nodes, or the pools of a file, which it watches. It adds nodes, removes them
// and changes them in place, tries again what has failed, shares the nodes out among
// processes, and deletes the Nodes that the file no longer has. Package nodepools
// parses the file and compares it with the nodes that run; the caller makes the
// configuration and the provider of each node.
package fleet
