// Package release tests scripts/release.sh. "make integration" runs it.
package release
