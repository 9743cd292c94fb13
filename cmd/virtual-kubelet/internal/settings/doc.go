// Package settings has the settings of a command in one table: its flags, the environment
// variables that are their defaults, the fields of its configuration file, the file's JSON
// schema and the description of all come from it. It reads no file and no variable itself.
package settings
