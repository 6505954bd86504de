/* Stand-in for the driver and CUPTI: "device memory" is the host's, and the one kernel multiplies floats. Tests load it as
 * libcuda.so.1 and as CUPTI; it calls the subscriber before and after each launch, as CUPTI does. */
#include <string.h>
#include <stdlib.h>

#include <cuda.h>
#include <cupti.h>

static CUpti_CallbackFunc subscriber;
static int launches_enabled[1024], modules_enabled, capturing;
static struct { CUdeviceptr base; size_t bytes; } allocations[64];
static size_t allocation_count;

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback, void *data) {
  (void)handle, (void)data;
  if (subscriber != NULL) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  subscriber = callback;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  (void)handle;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) launches_enabled[id] = (int)enable;
  else modules_enabled = (int)enable;
  return CUPTI_SUCCESS;
}

CUdeviceptr standin_allocate(size_t bytes) {
  allocations[allocation_count].base = (CUdeviceptr)calloc(1, bytes);
  allocations[allocation_count].bytes = bytes;
  return allocations[allocation_count++].base;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  for (size_t at = 0; at < allocation_count; ++at)
    if (address >= allocations[at].base && address < allocations[at].base + allocations[at].bytes) {
      *base = allocations[at].base, *bytes = allocations[at].bytes;
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) { return memcpy(to, (void *)from, bytes), CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) { return CUDA_SUCCESS; }
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) { return *mode = CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS; }

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  (void)stream;
  *status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

void standin_capture(int on) { capturing = on; }

/* scale(const float* x, float* y, float a, int n): the function's handle is 1, and that of its CUkernel is 2. */
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  *function = (CUfunction)1;
  return kernel == (CUkernel)2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
  (void)function;
  *name = "_Z5scalePKfPffi";
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
  static const size_t offsets[] = {0, 8, 16, 20}, sizes[] = {8, 8, 4, 4};
  if (function != (CUfunction)1) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= 4) return CUDA_ERROR_INVALID_VALUE;
  *offset = offsets[index], *bytes = sizes[index];
  return CUDA_SUCCESS;
}

static void call(CUpti_CallbackId id, const void *parameters, const char *name, void (*work)(void *), void *data) {
  static uint64_t slot;
  CUresult result = CUDA_SUCCESS;
  CUpti_CallbackData info;
  memset(&info, 0, sizeof info);
  info.functionParams = parameters, info.functionReturnValue = &result, info.symbolName = name, info.correlationData = &slot;
  info.callbackSite = CUPTI_API_ENTER;
  if (subscriber != NULL && launches_enabled[id]) subscriber(NULL, CUPTI_CB_DOMAIN_DRIVER_API, id, &info);
  if (work != NULL) work(data);
  info.callbackSite = CUPTI_API_EXIT;
  if (subscriber != NULL && launches_enabled[id]) subscriber(NULL, CUPTI_CB_DOMAIN_DRIVER_API, id, &info);
}

static void scale(void *data) {
  void **values = data;
  const float *x = *(const float **)values[0];
  float *y = *(float **)values[1], a = *(float *)values[2];
  for (int i = 0; i < *(int *)values[3]; ++i) y[i] = a * x[i];
}

enum { PLAIN, EXTENDED, COOPERATIVE, PACKED, GRAPH };

/* Launches scale by one of the driver's calls, under a name that the driver has for it. */
void standin_launch(int way, const char *name, unsigned grid, CUdeviceptr x, CUdeviceptr y, float a, int n) {
  void *values[] = {&x, &y, &a, &n};
  unsigned char packed[24];
  memcpy(packed, &x, 8), memcpy(packed + 8, &y, 8), memcpy(packed + 16, &a, 4), memcpy(packed + 20, &n, 4);
  size_t bytes = sizeof packed;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  CUlaunchAttribute cluster;
  CUlaunchConfig config;
  memset(&config, 0, sizeof config), memset(&cluster, 0, sizeof cluster);
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim.x = 2, cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
  config.attrs = &cluster, config.numAttrs = 1;
  config.gridDimX = grid, config.blockDimX = 64, config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  cuLaunchKernel_params plain = {(CUfunction)1, grid, 1, 1, 64, 1, 1, 0, NULL, values, NULL};
  cuLaunchKernelEx_params extended = {&config, (CUfunction)2, values, NULL};
  cuLaunchCooperativeKernel_params cooperative = {(CUfunction)1, grid, 1, 1, 64, 1, 1, 0, NULL, values};
  cuGraphLaunch_params graph = {NULL, NULL};
  if (way == PACKED) plain.kernelParams = NULL, plain.extra = extra;
  if (way == PLAIN || way == PACKED) call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &plain, name, scale, values);
  if (way == EXTENDED) call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, &extended, NULL, scale, values); /* by cuFuncGetName */
  if (way == COOPERATIVE) call(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, &cooperative, name, scale, values);
  if (way == GRAPH) call(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, &graph, NULL, scale, values);
}

void standin_load_module(const char *code, size_t bytes) {
  CUpti_ModuleResourceData module = {1, bytes, code};
  CUpti_ResourceData resource;
  memset(&resource, 0, sizeof resource);
  resource.resourceDescriptor = &module;
  if (modules_enabled) subscriber(NULL, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_LOADED, &resource);
}
