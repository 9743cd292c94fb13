// Package ec2test is a fake of the Query API of Amazon EC2, as far as package ec2 calls it. It verifies
// signatures, refuses parameters that the API does not have and values beyond its limits, and lists
// what it has made only after a while, as the service does.
package ec2test

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/virtual-kubelet/virtual-kubelet/podgroup/grouptest"
)

// What there is, and what requests have to be signed with.
const (
	Region      = "eu-west-1"
	AccessKey   = "AKIDEXAMPLE"
	SecretKey   = "secret"
	ImageID     = "ami-0123456789abcdef0"
	SubnetA     = "subnet-0aaaaaaaaaaaaaaa1"
	SubnetB     = "subnet-0bbbbbbbbbbbbbbb2"
	RootDevice  = "/dev/xvda"
	consoleText = "Linux version 6.12\nagent: it cannot reach the node\n"
)

// Server is EC2 in a region, at any address. It is an http.Handler.
type Server struct {
	// World has the clock, and the faults and quotas of actions.
	World *grouptest.World
	// Boot, if set, is called for each new instance, and may give it another address; stop is called
	// when it ends.
	Boot func(i Instance) (address string, stop func())
	// Step is how long an instance starts, and ends; Lag for how long a new one is not known yet,
	// TagRetention for how long one that has ended still has its tags, and Retention for how long it is
	// still known.
	Step, Lag, TagRetention, Retention time.Duration
	// NoTags has the answers of creations lack the tags.
	NoTags bool
	// PageSize is the most that a page has, regardless of what a call asks for.
	PageSize int

	mu        sync.Mutex
	instances []*Instance
	lacking   map[string]bool // capacity: subnets, or types of instances in one
	down      map[string]bool // subnets whose zone is out of order
	tokens    map[string]launch
	pages     map[string]page
	number    int
}

// New returns a server whose instances start and end at once, and are listed at once.
func New(w *grouptest.World) *Server {
	return &Server{
		World: w, TagRetention: time.Minute, Retention: time.Hour, PageSize: 1000,
		lacking: map[string]bool{}, down: map[string]bool{}, tokens: map[string]launch{}, pages: map[string]page{},
	}
}

func refuse(code, format string, args ...any) error {
	return &grouptest.Refusal{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

//go:embed testdata/parameters.txt
var parameterList string

// parameters are the names that the API has, behind their action.
var parameters = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(parameterList) {
		names[strings.TrimSpace(line)] = !strings.HasPrefix(line, "#")
	}
	return names
})

var number = regexp.MustCompile(`\.[1-9][0-9]*(\.|$)`)

// hasParameter reports whether an action has a parameter.
func hasParameter(action, name string) bool {
	for number.MatchString(name) {
		name = number.ReplaceAllString(name, ".N$1")
	}
	return parameters()["* "+name] || parameters()[action+" "+name]
}

var actions = map[string]func(*Server, url.Values) (any, error){
	"RunInstances":                 (*Server).run,
	"DescribeInstances":            (*Server).describe,
	"DescribeSpotInstanceRequests": (*Server).describeSpot,
	"TerminateInstances":           (*Server).terminate,
	"GetConsoleOutput":             (*Server).console,
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	form, badForm := url.ParseQuery(string(body))
	if err = errors.Join(err, badForm); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	action := form.Get("Action")
	var answer any
	err = s.World.Serve(r.Context(), action, func() (err error) {
		if err := verify(r, body); err != nil {
			return err
		}
		serve, found := actions[action]
		if !found || form.Get("Version") != "2016-11-15" {
			return refuse("InvalidAction", "The action %s is not valid for this web service.", action)
		}
		for name, values := range form {
			if !hasParameter(action, name) || len(values) != 1 {
				return refuse("UnknownParameter", "The parameter %s is not recognized", name)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.advance()
		answer, err = serve(s, form)
		return err
	})
	status := http.StatusOK
	root := action + "Response"
	if err != nil {
		status, root = http.StatusBadRequest, "Response"
		code, message := "InternalError", err.Error()
		if refusal, ok := errors.AsType[*grouptest.Refusal](err); ok {
			status, code, message = refusal.Status, refusal.Code, refusal.Message
		} else if errors.Is(err, grouptest.ErrQuota) {
			status, code, message = http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded."
		} else {
			status = grouptest.HTTPStatus(err)
		}
		answer = failure{Errors: failures{[]oneFailure{{code, message}}}, RequestID: "ea966190-f9aa-478e-9ede-example"}
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, xml.Header) // the client may have gone
	name := xml.Name{Local: root}
	if err == nil {
		name.Space = "http://ec2.amazonaws.com/doc/2016-11-15/"
	}
	_ = xml.NewEncoder(w).EncodeElement(answer, xml.StartElement{Name: name})
}

type failure struct {
	Errors    failures
	RequestID string
}

type failures struct{ Error []oneFailure }

type oneFailure struct{ Code, Message string }

var authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/[0-9]{8}/([^/]+)/ec2/aws4_request, SignedHeaders=([^,]+), Signature=[0-9a-f]{64}$`)

// verify refuses a request that is not signed with the secret key: it signs the same again.
func verify(r *http.Request, body []byte) error {
	has := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if has == nil || r.Method != http.MethodPost {
		return refuse("MissingAuthenticationToken", "The request must contain valid credentials.")
	}
	if has[1] != AccessKey || has[2] != Region {
		return &grouptest.Refusal{Status: http.StatusUnauthorized, Code: "AuthFailure", Message: "AWS was not able to validate the provided access credentials"}
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > 15*time.Minute {
		return refuse("RequestExpired", "Request has expired.")
	}
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+r.Host+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(has[3], ";") {
		if value := r.Header.Get(name); value != "" && name != "host" && name != "content-length" {
			again.Header.Set(name, value)
		}
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}, again, hex.EncodeToString(sum[:]), "ec2", Region, at); err != nil {
		return err
	}
	if again.Header.Get("Authorization") != r.Header.Get("Authorization") {
		return refuse("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	return nil
}
