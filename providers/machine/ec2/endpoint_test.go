package ec2

import (
	"testing"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
)

// The endpoint is the one that AWS's tools find with the same environment.
func TestEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		environment  map[string]string
		region, want string
	}{
		"region":                           {nil, "eu-west-1", "https://ec2.eu-west-1.amazonaws.com"},
		"China":                            {nil, "cn-north-1", "https://ec2.cn-north-1.amazonaws.com.cn"},
		"Sovereign":                        {nil, "eusc-de-east-1", "https://ec2.eusc-de-east-1.amazonaws.eu"},
		"FIPS":                             {map[string]string{"AWS_USE_FIPS_ENDPOINT": "true"}, "us-east-1", "https://ec2-fips.us-east-1.amazonaws.com"},
		"government, all of which is FIPS": {map[string]string{"AWS_USE_FIPS_ENDPOINT": "true"}, "us-gov-west-1", "https://ec2.us-gov-west-1.amazonaws.com"},
		"all services":                     {map[string]string{"AWS_ENDPOINT_URL": "http://all"}, "eu-west-1", "http://all"},
		"EC2 alone":                        {map[string]string{"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_EC2": "http://ec2"}, "eu-west-1", "http://ec2"},
		"ignored":                          {map[string]string{"AWS_ENDPOINT_URL_EC2": "http://ec2", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, "eu-west-1", "https://ec2.eu-west-1.amazonaws.com"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
				t.Setenv(variable, "/dev/null")
			}
			t.Setenv("AWS_REGION", c.region)
			for variable, value := range c.environment {
				t.Setenv(variable, value)
			}
			account, err := awsconfig.LoadDefaultConfig(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			api, err := newClient(&Config{}, account)
			if err != nil || api.endpoint != c.want {
				t.Fatalf("it is %+v, want %s: %v", api, c.want, err)
			}
			if api, err = newClient(&Config{Endpoint: "http://own"}, account); err != nil || api.endpoint != "http://own" {
				t.Errorf("with one in the configuration it is %+v: %v", api, err)
			}
		})
	}
}
