package podengine

import "sync"

// known keeps what the runtime has reported and will not change, so that it is
// asked once. It is safe for concurrent use.
type known struct {
	mu         sync.Mutex
	addresses  map[string][]string   // by sandbox
	containers map[string]*container // that have ended
}

func (k *known) ips(sandbox string) ([]string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ips, ok := k.addresses[sandbox]
	return ips, ok
}

func (k *known) setIPs(sandbox string, ips []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.addresses == nil {
		k.addresses = map[string][]string{}
	}
	k.addresses[sandbox] = ips
}

func (k *known) ended(id string) *container {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.containers[id]
}

func (k *known) setEnded(c *container) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.containers == nil {
		k.containers = map[string]*container{}
	}
	k.containers[c.id] = c
}

// forget drops what the runtime has removed.
func (k *known) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.addresses, id)
	delete(k.containers, id)
}
