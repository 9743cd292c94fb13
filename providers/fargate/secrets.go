package fargate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	secrettypes "github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/podgroup"
)

// The endings of the names of a definition's secrets, which begin with its family: values of
// variables and files, and the login of a registry.
const (
	valuesSecret = "-secrets" // not six characters, which would look like those that Secrets Manager adds
	loginSecret  = "-login"
)

// keySecret ends the name of the secret with the key of the hashes in the names of definitions,
// which begins with the prefix of the families. It is the node's, and stays while there are others.
const keySecret = "key"

// maxSecret is how large a secret may be, in bytes.
const maxSecret = 64 << 10

// secrets are what a definition has in Secrets Manager. References in the definition to what is
// not there yet begin with a colon (keys of values) or are the ending of the name.
type secrets struct {
	values map[string]string
	login  string // as ECS wants it; empty if there is none
}

// add keeps a value, and returns the reference to it.
func (s *secrets) add(value string) *string {
	if s.values == nil {
		s.values = map[string]string{}
	}
	key := strconv.Itoa(len(s.values))
	s.values[key] = value
	return new(":" + key + "::")
}

// texts returns the secrets by the endings of their names.
func (s *secrets) texts() (map[string]string, error) {
	texts := map[string]string{}
	if s.login != "" {
		texts[loginSecret] = s.login
	}
	if len(s.values) > 0 {
		text, err := json.Marshal(s.values)
		if err != nil {
			return nil, err
		}
		if texts[valuesSecret] = string(text); len(text) > maxSecret {
			return nil, errdefs.AsPermanent(fmt.Errorf("the values of Secrets have %d bytes, more than %d", len(text), maxSecret))
		}
	}
	return texts, nil
}

// addLogin has an image pulled with the pod's own credentials.
func (s *secrets) addLogin(login podgroup.Login) error {
	text, err := json.Marshal(map[string]string{"username": login.Username, "password": login.Password})
	s.login = string(text)
	return err
}

// isSecret returns a function that reports whether a variable of a container has a value from a
// Secret, as far as the pod in the API shows that: it may be one if it does not.
func isSecret(original *corev1.Pod, container string) func(name string) bool {
	if original == nil {
		return func(string) bool { return true }
	}
	clear, hidden, all := map[string]bool{}, map[string]bool{}, false
	for _, c := range slices.Concat(original.Spec.InitContainers, original.Spec.Containers) {
		if c.Name != container {
			continue
		}
		for _, from := range c.EnvFrom {
			all = all || from.SecretRef != nil
		}
		for _, v := range c.Env {
			secret := v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil || strings.Contains(v.Value, "$(") // it may refer to one
			clear[v.Name], hidden[v.Name] = !secret, secret
		}
	}
	return func(name string) bool { return hidden[name] || all && !clear[name] }
}

// reference is a reference to a variable in a command.
var reference = regexp.MustCompile(`\$\(([^)]+)\)`)

// checkCommands returns a permanent error if a command has the value of a Secret, which would be
// in the definition.
func (b *backend) checkCommands(pod *corev1.Pod) error {
	original := b.original(pod)
	if !b.cfg.SecretsManager || original == nil {
		return nil
	}
	for _, c := range slices.Concat(original.Spec.InitContainers, original.Spec.Containers) {
		secret := isSecret(original, c.Name)
		for _, word := range slices.Concat(c.Command, c.Args) {
			for _, name := range reference.FindAllStringSubmatch(word, -1) {
				if secret(name[1]) {
					return errdefs.AsPermanent(fmt.Errorf("containers[%s]: command or args refer to $(%s), whose value is of a Secret: it would be in the task definition in clear; let a shell in the container read the variable", c.Name, name[1]))
				}
			}
		}
	}
	return nil
}

// store creates the secrets of a plan, and sets the references to them. Those that exist are
// the same, since their name is made of their values.
func (b *backend) store(ctx context.Context, p *plan) error {
	texts, err := p.secrets.texts()
	if err != nil {
		return err
	}
	arns := map[string]string{}
	for ending, text := range texts {
		name := *p.definition.Family + ending
		out, err := b.secrets.CreateSecret(ctx, &secretsmanager.CreateSecretInput{Name: &name, SecretString: &text, Tags: b.secretTags()})
		if errors.As(err, new(*secrettypes.ResourceExistsException)) {
			if arns[ending], err = b.secretARN(ctx, name); err != nil {
				return err
			}
			if arns[ending] == "" {
				return errdefs.AsUnavailable(fmt.Errorf("secret %s of Secrets Manager is being deleted: it is created again then", name))
			}
			continue
		}
		if err != nil {
			return classify(podgroup.ActionCreate, err)
		}
		arns[ending] = aws.ToString(out.ARN)
	}
	for i := range p.definition.ContainerDefinitions {
		c := &p.definition.ContainerDefinitions[i]
		for j := range c.Secrets {
			if key := *c.Secrets[j].ValueFrom; strings.HasPrefix(key, ":") {
				c.Secrets[j].ValueFrom = new(arns[valuesSecret] + key)
			}
		}
		if r := c.RepositoryCredentials; r != nil && *r.CredentialsParameter == loginSecret {
			c.RepositoryCredentials = &types.RepositoryCredentials{CredentialsParameter: new(arns[loginSecret])}
		}
	}
	return nil
}

// secretARN returns the ARN of a secret, or nothing if there is none, or not for much longer.
func (b *backend) secretARN(ctx context.Context, name string) (string, error) {
	known, err := b.secrets.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: &name})
	if err = classify(podgroup.ActionLog, err); err != nil && !errdefs.IsNotFound(err) {
		return "", err
	}
	if err != nil || known.DeletedDate != nil {
		return "", nil
	}
	return aws.ToString(known.ARN), nil
}

// isStored reports whether the secrets of a plan exist.
func (b *backend) isStored(ctx context.Context, p *plan) (bool, error) {
	texts, err := p.secrets.texts()
	for ending := range texts {
		if arn, err := b.secretARN(ctx, *p.definition.Family+ending); err != nil || arn == "" {
			return false, err
		}
	}
	return err == nil, err
}

// deleteSecrets deletes the secrets of a family, if there are any.
func (b *backend) deleteSecrets(ctx context.Context, family string) error {
	if !b.cfg.SecretsManager || strings.HasPrefix(family, olderFamily) {
		return nil
	}
	var errs []error
	for _, ending := range []string{valuesSecret, loginSecret} {
		errs = append(errs, b.deleteSecret(ctx, family+ending))
	}
	return errors.Join(errs...)
}

func (b *backend) deleteSecret(ctx context.Context, name string) error {
	_, err := b.secrets.DeleteSecret(ctx, &secretsmanager.DeleteSecretInput{SecretId: &name, ForceDeleteWithoutRecovery: new(true)})
	if err = classify(podgroup.ActionDelete, err); errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// key returns the key of the hashes that are made of secrets, which is made once: another process
// finds the definitions of this one.
func (b *backend) key(ctx context.Context, prefix string) ([]byte, error) {
	b.mu.Lock()
	known := b.hashKey
	b.mu.Unlock()
	if known != nil {
		return known, nil
	}
	name := prefix + keySecret
	var err error
	for range 2 { // another process may create it meanwhile
		var found *secretsmanager.GetSecretValueOutput
		found, err = b.secrets.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &name})
		if err == nil && aws.ToString(found.SecretString) != "" {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.hashKey = []byte(*found.SecretString)
			return b.hashKey, nil
		}
		if err != nil && !errors.As(err, new(*secrettypes.ResourceNotFoundException)) {
			break
		}
		in := &secretsmanager.CreateSecretInput{Name: &name, SecretString: new(rand.Text() + rand.Text()), Tags: b.secretTags()}
		if _, err = b.secrets.CreateSecret(ctx, in); err != nil && !errors.As(err, new(*secrettypes.ResourceExistsException)) {
			break
		}
	}
	if err == nil {
		err = errors.New("it was created, and is not there yet")
		return nil, errdefs.AsUnavailable(fmt.Errorf("secret %s of Secrets Manager cannot be read: %w", name, err))
	}
	return nil, fmt.Errorf("secret %s, with the key of names, cannot be read or created: %w", name, classify(podgroup.ActionList, err))
}

func (b *backend) secretTags() (list []secrettypes.Tag) {
	for key, value := range b.cfg.Tags {
		list = append(list, secrettypes.Tag{Key: &key, Value: &value})
	}
	return list
}
