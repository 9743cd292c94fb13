package main

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// Config is the configuration of the provider.
type Config struct {
	// Capacity is what pods on the node may request, all together.
	Capacity corev1.ResourceList `json:"capacity"`
}

// ReadConfig reads a file, in which no field is unknown; without one it has the defaults.
func ReadConfig(path string) (Config, error) {
	config := Config{Capacity: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}}
	if path == "" {
		return config, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return config, fmt.Errorf("cannot read the configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return config, fmt.Errorf("the configuration %s is wrong: %w", path, err)
	}
	return config, nil
}
