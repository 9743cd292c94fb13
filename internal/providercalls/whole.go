package providercalls

// Whole returns a provider with its optional methods. A wrapper that only adds methods to a
// provider, as that of nodeutil.AsProvider does, hides them, and has a method Completes that
// returns what it wraps.
func Whole[P any](provider P) P {
	if wrapper, ok := any(provider).(interface{ Completes() P }); ok {
		return wrapper.Completes()
	}
	return provider
}
