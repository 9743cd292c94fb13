package errdefs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

var pods = schema.GroupResource{Resource: "pods"}

// says is a typed implementer of both interfaces.
type says struct{ notFound, invalid bool }

func (says) Error() string        { return "says" }
func (s says) NotFound() bool     { return s.notFound }
func (s says) InvalidInput() bool { return s.invalid }

// caused wraps the way of github.com/pkg/errors before it knew Unwrap.
type caused struct{ cause error }

func (caused) Error() string  { return "caused" }
func (c caused) Cause() error { return c.cause }

// wrapper says no for itself, but wraps.
type wrapper struct {
	says
	err error
}

func (w wrapper) Unwrap() error { return w.err }

// typedInvalid says of itself that the request was at fault, and wraps why.
type typedInvalid struct{ error }

func (typedInvalid) InvalidInput() bool { return true }
func (e typedInvalid) Unwrap() error    { return e.error }

// circular is its own cause.
type circular struct{}

func (circular) Error() string  { return "circular" }
func (c circular) Cause() error { return c }

var errBoom = errors.New("boom")

func TestClassOf(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want errdefs.Class
	}{
		"nil":      {nil, ""},
		"plain":    {errBoom, errdefs.UnknownClass},
		"canceled": {context.Canceled, errdefs.UnknownClass},

		"NotFound":      {errdefs.NotFound("x"), errdefs.NotFoundClass},
		"NotFoundf":     {errdefs.NotFoundf("x %d", 1), errdefs.NotFoundClass},
		"AsNotFound":    {errdefs.AsNotFound(errBoom), errdefs.NotFoundClass},
		"InvalidInput":  {errdefs.InvalidInput("x"), errdefs.InvalidInputClass},
		"InvalidInputf": {errdefs.InvalidInputf("x %d", 1), errdefs.InvalidInputClass},
		"AsInvalid":     {errdefs.AsInvalidInput(errBoom), errdefs.InvalidInputClass},
		"AsUnavailable": {errdefs.AsUnavailable(errBoom), errdefs.UnavailableClass},
		"AsConflict":    {errdefs.AsConflict(errBoom), errdefs.ConflictClass},
		"AsPermanent":   {errdefs.AsPermanent(errBoom), errdefs.PermanentClass},
		"AsRetryAfter":  {errdefs.AsRetryAfter(errBoom, time.Second), errdefs.RetryAfterClass},

		"%w":                   {fmt.Errorf("a: %w", fmt.Errorf("b: %w", errdefs.NotFound("x"))), errdefs.NotFoundClass},
		"two %w":               {fmt.Errorf("a: %w, %w", errBoom, errdefs.AsConflict(errBoom)), errdefs.ConflictClass},
		"NotFoundf %w":         {errdefs.NotFoundf("x: %w", errdefs.AsUnavailable(errBoom)), errdefs.NotFoundClass},
		"joined":               {errors.Join(errBoom, fmt.Errorf("a: %w", errdefs.InvalidInput("x"))), errdefs.InvalidInputClass},
		"joined, not at first": {errors.Join(errdefs.AsUnavailable(errBoom), errdefs.AsPermanent(errBoom)), errdefs.PermanentClass},
		"cause":                {caused{errdefs.NotFound("x")}, errdefs.NotFoundClass},
		"cause in %w":          {fmt.Errorf("a: %w", caused{caused{errdefs.InvalidInput("x")}}), errdefs.InvalidInputClass},
		"cause nil":            {caused{nil}, errdefs.UnknownClass},
		"circular":             {circular{}, errdefs.UnknownClass},

		"typed not found":     {says{notFound: true}, errdefs.NotFoundClass},
		"typed invalid":       {says{invalid: true}, errdefs.InvalidInputClass},
		"typed neither":       {says{}, errdefs.UnknownClass},
		"typed no, wraps yes": {wrapper{err: says{notFound: true}}, errdefs.NotFoundClass},

		"unavailable NotFound":    {errdefs.AsUnavailable(fmt.Errorf("a: %w", errdefs.NotFound("x"))), errdefs.UnavailableClass},
		"NotFound unavailable":    {fmt.Errorf("a: %w", errdefs.AsNotFound(errdefs.AsUnavailable(errBoom))), errdefs.NotFoundClass},
		"unavailable API invalid": {errdefs.AsUnavailable(apierrors.NewBadRequest("x")), errdefs.UnavailableClass},
		"conflict permanent":      {errdefs.AsConflict(errdefs.AsPermanent(errBoom)), errdefs.ConflictClass},
		"retry after unavailable": {errdefs.AsRetryAfter(errdefs.AsUnavailable(errBoom), 1), errdefs.RetryAfterClass},
		"typed invalid NotFound":  {typedInvalid{errdefs.NotFound("x")}, errdefs.InvalidInputClass},
		"unavailable joined":      {errdefs.AsUnavailable(errors.Join(errBoom, errdefs.AsPermanent(errBoom))), errdefs.UnavailableClass},
		"joined, marked inside":   {errors.Join(errdefs.AsUnavailable(errdefs.AsPermanent(errBoom)), errdefs.AsConflict(errBoom)), errdefs.ConflictClass},

		"API not found":         {apierrors.NewNotFound(pods, "p"), errdefs.NotFoundClass},
		"API invalid":           {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), errdefs.InvalidInputClass},
		"API bad request":       {apierrors.NewBadRequest("x"), errdefs.InvalidInputClass},
		"API conflict":          {apierrors.NewConflict(pods, "p", errBoom), errdefs.ConflictClass},
		"API exists":            {apierrors.NewAlreadyExists(pods, "p"), errdefs.ConflictClass},
		"API unavailable":       {apierrors.NewServiceUnavailable("x"), errdefs.UnavailableClass},
		"API timeout":           {apierrors.NewTimeoutError("x", 0), errdefs.UnavailableClass},
		"API too many":          {apierrors.NewTooManyRequests("x", 3), errdefs.RetryAfterClass},
		"API too many, no time": {apierrors.NewTooManyRequests("x", 0), errdefs.RetryAfterClass},
		"API forbidden":         {apierrors.NewForbidden(pods, "p", errBoom), errdefs.UnknownClass},
		"API %w":                {fmt.Errorf("a: %w", apierrors.NewNotFound(pods, "p")), errdefs.NotFoundClass},
		"API joined":            {errors.Join(errBoom, apierrors.NewConflict(pods, "p", errBoom)), errdefs.ConflictClass},
		"API two":               {errors.Join(apierrors.NewForbidden(pods, "p", errBoom), apierrors.NewNotFound(pods, "q")), errdefs.NotFoundClass},
		"API in cause":          {caused{apierrors.NewNotFound(pods, "p")}, errdefs.NotFoundClass},
	} {
		t.Run(name, func(t *testing.T) {
			if got := errdefs.ClassOf(tc.err); got != tc.want {
				t.Errorf("ClassOf is %q, want %q", got, tc.want)
			}
			if got := errdefs.Describe(tc.err).Class; got != tc.want {
				t.Errorf("Describe says %q, want %q", got, tc.want)
			}
			for class, is := range map[errdefs.Class]func(error) bool{
				errdefs.NotFoundClass:     errdefs.IsNotFound,
				errdefs.InvalidInputClass: errdefs.IsInvalidInput,
				errdefs.ConflictClass:     errdefs.IsConflict,
				errdefs.UnavailableClass:  errdefs.IsUnavailable,
				errdefs.PermanentClass:    errdefs.IsPermanent,
			} {
				if class == tc.want && !is(tc.err) {
					t.Errorf("the Is function of %s says no", class)
				}
				if tc.want == "" && is(tc.err) {
					t.Errorf("the Is function of %s says yes to nil", class)
				}
			}
		})
	}
}

// A mark around an error counts for its class, and does not hide what it wraps.
func TestIsSeesThroughMarks(t *testing.T) {
	if err := errdefs.AsUnavailable(errdefs.NotFound("x")); !errdefs.IsNotFound(err) {
		t.Error("IsNotFound says no")
	}
	if err := errdefs.AsUnavailable(errdefs.InvalidInput("x")); !errdefs.IsInvalidInput(err) {
		t.Error("IsInvalidInput says no")
	}
	if err := errdefs.AsRetryAfter(errdefs.AsPermanent(errBoom), 1); !errdefs.IsPermanent(err) {
		t.Error("IsPermanent says no")
	}
}

func TestNilStaysNil(t *testing.T) {
	for name, err := range map[string]error{
		"AsNotFound":     errdefs.AsNotFound(nil),
		"AsInvalidInput": errdefs.AsInvalidInput(nil),
		"AsUnavailable":  errdefs.AsUnavailable(nil),
		"AsConflict":     errdefs.AsConflict(nil),
		"AsPermanent":    errdefs.AsPermanent(nil),
		"AsRetryAfter":   errdefs.AsRetryAfter(nil, time.Second),
	} {
		if err != nil {
			t.Errorf("%s(nil) is %v", name, err)
		}
	}
	if m := errdefs.Describe(nil); m != (errdefs.Meaning{}) {
		t.Errorf("Describe(nil) is %+v", m)
	}
}

func TestWrappersKeepTextAndChain(t *testing.T) {
	for name, err := range map[string]error{
		"AsNotFound":     errdefs.AsNotFound(errBoom),
		"AsInvalidInput": errdefs.AsInvalidInput(errBoom),
		"AsUnavailable":  errdefs.AsUnavailable(errBoom),
		"AsConflict":     errdefs.AsConflict(errBoom),
		"AsPermanent":    errdefs.AsPermanent(errBoom),
		"AsRetryAfter":   errdefs.AsRetryAfter(errBoom, time.Second),
	} {
		if err.Error() != "boom" || !errors.Is(err, errBoom) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, err := range []error{errdefs.AsNotFound(errBoom), errdefs.AsInvalidInput(errBoom)} {
		if c, ok := err.(interface{ Cause() error }); !ok || c.Cause() != errBoom {
			t.Errorf("%T: no Cause", err)
		}
	}
	if err := errdefs.NotFoundf("a: %w", errBoom); err.Error() != "a: boom" || !errors.Is(err, errBoom) {
		t.Errorf("NotFoundf: %v", err)
	}
	if err := errdefs.InvalidInputf("a: %w", errBoom); err.Error() != "a: boom" || !errors.Is(err, errBoom) {
		t.Errorf("InvalidInputf: %v", err)
	}
}

func TestInterfaces(t *testing.T) {
	var n errdefs.ErrNotFound
	if !errors.As(errdefs.NotFound("x"), &n) || !n.NotFound() {
		t.Error("NotFound is no ErrNotFound")
	}
	var i errdefs.ErrInvalidInput
	if !errors.As(errdefs.InvalidInput("x"), &i) || !i.InvalidInput() {
		t.Error("InvalidInput is no ErrInvalidInput")
	}
}

func TestTable(t *testing.T) {
	for _, tc := range []struct {
		err   error
		class errdefs.Class
		retry errdefs.Retry
		http  int
	}{
		{errdefs.AsPermanent(errBoom), "permanent", errdefs.RetrySlowly, http.StatusUnprocessableEntity},
		{errdefs.InvalidInput("x"), "invalid_input", errdefs.RetryBackoff, http.StatusBadRequest},
		{errdefs.NotFound("x"), "not_found", errdefs.RetryBackoff, http.StatusNotFound},
		{errdefs.AsConflict(errBoom), "conflict", errdefs.RetryBackoff, http.StatusConflict},
		{errdefs.AsRetryAfter(errBoom, 1), "retry_after", errdefs.RetryAfterDelay, http.StatusTooManyRequests},
		{errdefs.AsUnavailable(errBoom), "unavailable", errdefs.RetryBackoff, http.StatusServiceUnavailable},
		{errBoom, "unknown", errdefs.RetryBackoff, http.StatusInternalServerError},
	} {
		want := errdefs.Meaning{
			Class: tc.class, Retry: tc.retry, PodReason: errdefs.ReasonProviderFailed,
			HTTPStatus: tc.http,
		}
		if got := errdefs.Describe(fmt.Errorf("a: %w", tc.err)); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	tooMany := apierrors.NewTooManyRequests("x", 3)
	serverTimeout := apierrors.NewServerTimeout(pods, "get", 2)
	noDelay := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonTooManyRequests}}
	for name, tc := range map[string]struct {
		err   error
		delay time.Duration
		ok    bool
	}{
		"nil":                {nil, 0, false},
		"plain":              {errBoom, 0, false},
		"ours":               {errdefs.AsRetryAfter(errBoom, time.Minute), time.Minute, true},
		"negative":           {errdefs.AsRetryAfter(errBoom, -time.Minute), 0, true},
		"wrapped":            {fmt.Errorf("a: %w", errdefs.AsUnavailable(errdefs.AsRetryAfter(errBoom, time.Minute))), time.Minute, true},
		"joined":             {errors.Join(errBoom, errdefs.AsRetryAfter(errBoom, time.Minute)), time.Minute, true},
		"API too many":       {tooMany, 3 * time.Second, true},
		"API wrapped":        {fmt.Errorf("a: %w", tooMany), 3 * time.Second, true},
		"API server timeout": {serverTimeout, 2 * time.Second, true},
		"API without a time": {noDelay, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if delay, ok := errdefs.RetryAfter(tc.err); delay != tc.delay || ok != tc.ok {
				t.Errorf("got %v, %v, want %v, %v", delay, ok, tc.delay, tc.ok)
			}
		})
	}
}

// Where a pod's end depends on it, a failure beside a NotFound is a failure.
func TestIsOnlyNotFound(t *testing.T) {
	missing := errdefs.NotFound("no such pod")
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                          {nil, false},
		"plain":                        {errBoom, false},
		"NotFound":                     {missing, true},
		"API not found":                {apierrors.NewNotFound(pods, "p"), true},
		"API forbidden":                {apierrors.NewForbidden(pods, "p", errBoom), false},
		"typed":                        {says{notFound: true}, true},
		"typed no, wraps yes":          {wrapper{err: says{notFound: true}}, true},
		"%w":                           {fmt.Errorf("a: %w", missing), true},
		"cause":                        {caused{missing}, true},
		"circular":                     {circular{}, false},
		"a failure that is called so":  {errdefs.AsNotFound(errBoom), true},
		"failures that are called so":  {errdefs.AsNotFound(errors.Join(errBoom, errBoom)), true},
		"joined":                       {errors.Join(missing, apierrors.NewNotFound(pods, "p")), true},
		"joined with nothing":          {errors.Join(nil, missing), true},
		"joined with a failure":        {errors.Join(missing, errBoom), false},
		"joined after a failure":       {errors.Join(errBoom, missing), false},
		"joined with a failure, in %w": {fmt.Errorf("a: %w", errors.Join(missing, errdefs.AsUnavailable(errBoom))), false},
		"joined in a join":             {errors.Join(missing, errors.Join(missing, errBoom)), false},
		"two %w":                       {fmt.Errorf("a: %w, b: %w", missing, errBoom), false},
		"two %w, both":                 {fmt.Errorf("a: %w, b: %w", missing, missing), true},
		"unavailable":                  {errdefs.AsUnavailable(fmt.Errorf("credentials: %w", missing)), false},
		"unavailable, API not found":   {errdefs.AsUnavailable(apierrors.NewNotFound(pods, "p")), false},
		"unavailable, in %w":           {fmt.Errorf("a: %w", errdefs.AsUnavailable(missing)), false},
		"unavailable, joined":          {errdefs.AsUnavailable(errors.Join(missing, missing)), false},
		"unavailable, in a join":       {errors.Join(missing, errdefs.AsUnavailable(missing)), false},
		"conflict":                     {errdefs.AsConflict(missing), false},
		"permanent":                    {errdefs.AsPermanent(missing), false},
		"retry after":                  {errdefs.AsRetryAfter(missing, time.Second), false},
		"invalid input":                {errdefs.AsInvalidInput(missing), false},
		"typed invalid":                {typedInvalid{missing}, false},
		"called so after unavailable":  {errdefs.AsNotFound(errdefs.AsUnavailable(missing)), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := errdefs.IsOnlyNotFound(tc.err); got != tc.want {
				t.Errorf("got %t for %v", got, tc.err)
			}
			if tc.want && !errdefs.IsNotFound(tc.err) {
				t.Error("IsNotFound is narrower")
			}
		})
	}
}
