package filetree

// Used is what something takes of its file system.
type Used struct{ Bytes, Inodes int64 }
