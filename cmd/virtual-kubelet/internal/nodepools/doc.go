// Package nodepools reads a file that says which nodes a process is to be, and
// tells what has to be done to get from those that run to those. It does nothing
// of it, and reads no file itself.
package nodepools
