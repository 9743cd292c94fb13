package filetree

import "context"

// Used is what something takes of its file system.
type Used struct{ Bytes, Inodes int64 }

// reportEvery is after how many files and directories what was counted so far is reported.
const reportEvery = 1024

type soFarKey struct{}

// WithSoFar returns a context with which Measure calls soFar now and then with what it has
// counted, in trees of many files.
func WithSoFar(ctx context.Context, soFar func(Used)) context.Context {
	return context.WithValue(ctx, soFarKey{}, soFar)
}

// reporter reports what was counted so far.
type reporter struct {
	soFar func(Used) // may be nil
	last  int64      // inodes that were reported
}

func reporterOf(ctx context.Context) reporter {
	soFar, _ := ctx.Value(soFarKey{}).(func(Used))
	return reporter{soFar: soFar}
}

func (r *reporter) report(used Used) {
	if r.soFar != nil && used.Inodes-r.last >= reportEvery {
		r.last = used.Inodes
		r.soFar(used)
	}
}
