package aci

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
)

// standbyVersion is the version of the API that has standby pools, which that of the SDK does
// not.
const standbyVersion = "2025-09-01"

// standby adds the standby pool to creations.
type standby struct{ cfg *Config }

// Do implements policy.Policy.
func (s standby) Do(r *policy.Request) (*http.Response, error) {
	if r.Raw().Method != http.MethodPut {
		return r.Next()
	}
	text, err := io.ReadAll(r.Body())
	var group map[string]any
	if err == nil {
		err = json.Unmarshal(text, &group)
	}
	if err != nil {
		return nil, err
	}
	properties, _ := group["properties"].(map[string]any)
	properties["standbyPoolProfile"] = map[string]any{"id": s.cfg.StandbyPool}
	profile := map[string]any{"id": s.cfg.ContainerGroupProfile}
	if s.cfg.ProfileRevision > 0 {
		profile["revision"] = s.cfg.ProfileRevision
	}
	properties["containerGroupProfile"] = profile
	if text, err = json.Marshal(group); err != nil {
		return nil, err
	}
	query := r.Raw().URL.Query()
	query.Set("api-version", standbyVersion)
	r.Raw().URL.RawQuery = query.Encode()
	if err := r.SetBody(streaming.NopCloser(bytes.NewReader(text)), "application/json"); err != nil {
		return nil, err
	}
	return r.Next()
}
