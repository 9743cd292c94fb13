package ec2

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
)

const (
	apiVersion = "2016-11-15"
	// callTimeout is that of one call, and maxAnswer the size in bytes of its answer.
	callTimeout, maxAnswer = 30 * time.Second, 64 << 20
)

// client calls the Query API of EC2. It is safe for concurrent use.
type client struct {
	http             aws.HTTPClient
	credentials      aws.CredentialsProvider
	signer           *v4.Signer
	region, endpoint string
	paces            map[action]*pace
}

func newClient(c *Config, account aws.Config) (*client, error) {
	region := cmp.Or(c.Region, account.Region)
	if region == "" {
		return nil, errdefs.InvalidInput("machine config: ec2.region: it is missing, also from the environment and the profile")
	}
	if account.Credentials == nil {
		return nil, errdefs.InvalidInput("machine config: ec2: there are no credentials of AWS")
	}
	endpoint := c.Endpoint
	if endpoint == "" {
		var err error
		if endpoint, err = endpointOf(account, region); err != nil {
			return nil, errdefs.InvalidInputf("machine config: ec2: the endpoint that the environment or the profile names: %w", err)
		}
	}
	out := &client{http: account.HTTPClient, credentials: account.Credentials, signer: v4.NewSigner(), region: region, endpoint: endpoint, paces: newPaces()}
	if out.http == nil {
		out.http = awshttp.NewBuildableClient()
	}
	return out, nil
}

// apiError is an error that EC2 has answered with.
type apiError struct {
	Code, Message, RequestID string
	status                   int
}

func (e *apiError) Error() string { return e.Code + ": " + explain(e.Code, e.Message) }

// codeOf returns EC2's code of an error; empty if EC2 has not answered.
func codeOf(err error) string {
	if answer, ok := errors.AsType[*apiError](err); ok {
		return answer.Code
	}
	return ""
}

// call makes a call when it is its turn, and decodes the answer. The error has its class. A creation
// whose error is no apiError may have been made.
func (c *client) call(ctx context.Context, a action, parameters url.Values, out any) error {
	pace := c.paces[a]
	if err := pace.wait(ctx); err != nil {
		return notCalled{err}
	}
	late, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("EC2 has not answered in %v", callTimeout))
	defer cancel()
	err := c.send(late, a, parameters, out)
	pace.record(codeOf(err))
	if err != nil && late.Err() != nil && codeOf(err) == "" {
		err = fmt.Errorf("%w: %w", context.Cause(late), err)
	}
	return classify(a, err)
}

// notCalled is the error of a call that was not made.
type notCalled struct{ error }

// Unwrap returns why.
func (e notCalled) Unwrap() error { return e.error }

func (c *client) send(ctx context.Context, a action, parameters url.Values, out any) error {
	credentials, err := c.credentials.Retrieve(ctx)
	if err != nil {
		return notCalled{fmt.Errorf("the credentials of AWS cannot be read: %w", err)}
	}
	form := url.Values{"Action": {string(a)}, "Version": {apiVersion}}
	for name, values := range parameters {
		form[name] = values
	}
	body := form.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.endpoint, "/")+"/", strings.NewReader(body))
	if err != nil {
		return notCalled{err}
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	sum := sha256.Sum256([]byte(body))
	if err := c.signer.SignHTTP(ctx, credentials, request, hex.EncodeToString(sum[:]), "ec2", c.region, time.Now()); err != nil {
		return notCalled{err}
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err // its text has the URL, and nothing of the body
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return readError(response.StatusCode, text)
	}
	return decode(text, string(a)+"Response", out)
}

// decode decodes an answer, which has to have a root of this name.
func decode(text []byte, root string, out any) error {
	decoder := xml.NewDecoder(bytes.NewReader(text))
	for {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("the answer of EC2 cannot be read: %w", err)
		}
		if start, ok := token.(xml.StartElement); ok {
			if start.Name.Local != root {
				return fmt.Errorf("the answer is a %q, not EC2's %s: is the endpoint right?", start.Name.Local, root)
			}
			if err := decoder.DecodeElement(out, &start); err != nil {
				return fmt.Errorf("the answer of EC2 cannot be read: %w", err)
			}
			return nil
		}
	}
}

// readError returns the error of an answer.
func readError(status int, text []byte) error {
	var answer struct {
		Errors []struct {
			Code    string
			Message string
		} `xml:"Errors>Error"`
		RequestID string
	}
	if err := decode(text, "Response", &answer); err != nil || len(answer.Errors) == 0 || answer.Errors[0].Code == "" {
		return fmt.Errorf("EC2, or what is before it, answers with status %d", status)
	}
	return &apiError{answer.Errors[0].Code, answer.Errors[0].Message, answer.RequestID, status}
}
