// Package zuntest is a fake of Keystone and of Zun's API, as far as package zun calls it. It
// refuses what Zun's schemas refuse.
package zuntest
