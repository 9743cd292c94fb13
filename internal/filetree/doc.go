// Package filetree removes and measures directory trees that others have made: however deep,
// large or hostile they are. It works with open directories, not with paths, so a
// link that appears in the tree meanwhile leads nowhere, and with a few of them at a
// time, so it needs neither many descriptors nor much memory.
package filetree
