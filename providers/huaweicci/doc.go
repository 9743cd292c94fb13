// Package huaweicci is a provider that runs pods in Huawei Cloud Container Instance (CCI), a
// service with the API of Kubernetes for its tenants. It is package kubernetes with a
// transport that signs requests and translates between Kubernetes' names and those of the
// service's API; README.md says how to run it.
package huaweicci
