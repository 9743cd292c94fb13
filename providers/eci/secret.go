package eci

import "github.com/virtual-kubelet/virtual-kubelet/internal/config"

// Secret is a string that is never printed: printing, formatting or marshalling it
// results in a placeholder.
type Secret = config.Secret

const hidden = "[hidden]" // in place of secrets in texts of others
