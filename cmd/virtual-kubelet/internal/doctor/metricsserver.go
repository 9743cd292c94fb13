package doctor

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// apiService is what is read of an APIService.
type apiService struct {
	Status struct {
		Conditions []struct {
			Type    string
			Status  corev1.ConditionStatus
			Reason  string
			Message string
		}
	}
}

// checkMetricsServer looks whether kubectl top and autoscalers can work.
func checkMetricsServer(ctx context.Context, e *examination) Finding {
	const name = "v1beta1.metrics.k8s.io"
	content, err := e.client.Discovery().RESTClient().Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/"+name).
		SetHeader("Accept", "application/json").DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return warning("kubectl apply -f https://github.com/kubernetes-sigs/metrics-server/releases/latest/download/components.yaml",
			"there is no metrics-server, which kubectl top and autoscalers need")
	case err != nil:
		return e.unread("APIService "+name, err)
	}
	var service apiService
	if err := json.Unmarshal(content, &service); err != nil {
		return failed("", "cannot read APIService %s: %v", name, err)
	}
	for _, c := range service.Status.Conditions {
		switch {
		case c.Type != "Available":
		case c.Status == corev1.ConditionTrue:
			return ok("available")
		default:
			return failed("kubectl describe apiservice "+name+", and the pods of metrics-server: kubectl -n kube-system get pods", "metrics-server is not available: %s: %s", c.Reason, c.Message)
		}
	}
	return warning("", "APIService %s has no condition Available yet", name)
}
