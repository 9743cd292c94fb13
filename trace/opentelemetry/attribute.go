package opentelemetry

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/virtual-kubelet/virtual-kubelet/log"
)

// attributesOf returns the fields as attributes, in the order of their keys.
func attributesOf(fields log.Fields) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, len(fields)+1)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		attrs = append(attrs, attributeOf(key, fields[key]))
	}
	return attrs
}

// attributeOf keeps the types that OpenTelemetry knows. The rest becomes text.
func attributeOf(key string, value any) attribute.KeyValue {
	switch v := value.(type) {
	case string:
		return attribute.String(key, v)
	case bool:
		return attribute.Bool(key, v)
	case int:
		return attribute.Int(key, v)
	case int8:
		return attribute.Int64(key, int64(v))
	case int16:
		return attribute.Int64(key, int64(v))
	case int32:
		return attribute.Int64(key, int64(v))
	case int64:
		return attribute.Int64(key, v)
	case uint8:
		return attribute.Int64(key, int64(v))
	case uint16:
		return attribute.Int64(key, int64(v))
	case uint32:
		return attribute.Int64(key, int64(v))
	case uint:
		if v <= math.MaxInt64 {
			return attribute.Int64(key, int64(v))
		}
	case uint64:
		if v <= math.MaxInt64 {
			return attribute.Int64(key, int64(v))
		}
	case float32:
		return attribute.Float64(key, float64(v))
	case float64:
		return attribute.Float64(key, v)
	case []string:
		return attribute.StringSlice(key, v)
	case []bool:
		return attribute.BoolSlice(key, v)
	case []int:
		return attribute.IntSlice(key, v)
	case []int64:
		return attribute.Int64Slice(key, v)
	case []float64:
		return attribute.Float64Slice(key, v)
	}
	return attribute.String(key, fmt.Sprint(value))
}
