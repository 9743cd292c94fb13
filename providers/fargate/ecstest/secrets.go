package ecstest

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
)

// secret is a secret of Secrets Manager.
type secret struct {
	arn, text string
	dying     bool
	created   time.Time
}

var secretRule = regexp.MustCompile(`^[A-Za-z0-9/_+=.@-]{1,512}$`)

// Secrets returns the texts of the secrets by their names.
func (s *Server) Secrets() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := map[string]string{}
	for name, secret := range s.secrets {
		if !secret.dying {
			texts[name] = secret.text
		}
	}
	return texts
}

// DropSecrets deletes all secrets, as others may.
func (s *Server) DropSecrets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.secrets)
}

// SlowSecrets sets whether secrets exist on for some time after their deletion.
func (s *Server) SlowSecrets(slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = slow
	maps.DeleteFunc(s.secrets, func(_ string, known secret) bool { return !slow && known.dying })
}

func (s *Server) createSecret(in secretsmanager.CreateSecretInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !secretRule.MatchString(*in.Name), len(*in.SecretString) > 64<<10, *in.SecretString == "":
		return nil, invalid("You provided an invalid value for a parameter.")
	case s.secrets[*in.Name].arn != "":
		return nil, refuse("ResourceExistsException", "The operation failed because the secret already exists.")
	}
	arn := "arn:aws:secretsmanager:eu-west-1:123456789012:secret:" + *in.Name + "-" + rand.Text()[:6]
	s.secrets[*in.Name] = secret{arn: arn, text: *in.SecretString, created: s.World.Now()}
	return object{"ARN": arn, "Name": *in.Name}, nil
}

func (s *Server) describeSecret(in secretsmanager.DescribeSecretInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.secrets[*in.SecretId]
	if !ok {
		return nil, refuse("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
	}
	answer := object{"ARN": known.arn, "Name": *in.SecretId}
	if known.dying {
		answer["DeletedDate"] = seconds(s.World.Now())
	}
	return answer, nil
}

func (s *Server) secretText(in secretsmanager.GetSecretValueInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.secrets[*in.SecretId]
	if !ok || known.dying {
		return nil, refuse("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
	}
	return object{"ARN": known.arn, "Name": *in.SecretId, "SecretString": known.text}, nil
}

func (s *Server) listSecrets(in secretsmanager.ListSecretsInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(in.Filters) != 1 || in.Filters[0].Key != "name" || len(in.Filters[0].Values) != 1 {
		return nil, invalid("the fake lists by the beginning of names only")
	}
	list := []any{}
	for name, known := range s.secrets {
		if strings.HasPrefix(name, in.Filters[0].Values[0]) && !known.dying {
			list = append(list, object{"ARN": known.arn, "Name": name, "CreatedDate": seconds(known.created)})
		}
	}
	return object{"SecretList": list}, nil
}

// deleteSecret succeeds for one that does not exist, as the service does when it is forced.
func (s *Server) deleteSecret(in secretsmanager.DeleteSecretInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.ForceDeleteWithoutRecovery == nil || !*in.ForceDeleteWithoutRecovery {
		return nil, invalid("the fake deletes at once only")
	}
	if known, found := s.secrets[*in.SecretId]; found && s.slow {
		known.dying = true
		s.secrets[*in.SecretId] = known
	} else {
		delete(s.secrets, *in.SecretId)
	}
	return object{"Name": *in.SecretId}, nil
}

// Environment returns the variables that a container of a task has.
func (s *Server) Environment(t Task, container string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	env := map[string]string{}
	set := func(pairs []types.KeyValuePair) {
		for _, v := range pairs {
			env[*v.Name] = *v.Value
		}
	}
	for _, c := range t.Definition.ContainerDefinitions {
		if *c.Name != container {
			continue
		}
		set(c.Environment)
		for _, v := range c.Secrets {
			env[*v.Name] = s.secretValue(*v.ValueFrom)
		}
	}
	if t.Run.Overrides != nil {
		for _, o := range t.Run.Overrides.ContainerOverrides {
			if *o.Name == container {
				set(o.Environment)
			}
		}
	}
	return env
}

// secretValue returns the value at ARN:KEY::, or nothing. The caller holds s.mu.
func (s *Server) secretValue(from string) string {
	for _, known := range s.secrets {
		if key, ok := strings.CutPrefix(from, known.arn+":"); ok && !known.dying {
			var values map[string]string
			_ = json.Unmarshal([]byte(known.text), &values)
			return values[strings.TrimSuffix(key, "::")]
		}
	}
	return ""
}
