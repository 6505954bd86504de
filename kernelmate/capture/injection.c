/* Records launches of one kernel in a program on a GPU.
 *
 * The driver loads this library into each process with CUDA_INJECTION64_PATH and calls InitializeInjection. CUPTI then calls
 * `on_callback` before and after each launch. A launch of the kernel gets one folder of the form that records.py describes. What
 * is recorded is read from the environment, as records.py names it. An error stops the recording, never the program.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cuda.h>
#include <cupti.h>

enum { FORMAT = 1, MOST_PARAMETERS = 512, MOST_SHAPES = 4096, MOST_NAMES = 4096, LARGEST_KEYED = 1 << 24, PATH_BYTES = 4096 };

/* What the environment asks for, and what this process has done. `lock` guards all of it but the settings. */
static struct {
  const char *folder, *kernel;
  uint64_t limit, every, shapes;
  pthread_mutex_t lock;
  uint64_t seen, modules;
  uint64_t keys[MOST_SHAPES], taken[MOST_SHAPES];
  size_t key_count;
  uint64_t names[MOST_NAMES];
  size_t name_count;
  int stopped;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Functions of the driver; older ones lack some. */
static struct {
  CUresult (*get_range)(CUdeviceptr *, size_t *, CUdeviceptr);
  CUresult (*copy_to_host)(void *, CUdeviceptr, size_t);
  CUresult (*synchronize)(void);
  CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *);
  CUresult (*exchange_mode)(CUstreamCaptureMode *);
  CUresult (*function_of_kernel)(CUfunction *, CUkernel);
  CUresult (*parameter_of)(CUfunction, size_t, size_t *, size_t *);
  CUresult (*name_of)(const char **, CUfunction);
} driver;

typedef struct {
  size_t bytes;          /* of the parameter */
  unsigned char *passed; /* a copy of them */
  CUdeviceptr address;   /* 0 if the parameter is no address of device memory */
  size_t extent, copied; /* bytes to the end of the allocation, and those that are recorded */
  unsigned char *before;
  int changed;
} Parameter;

/* A launch between its two callbacks. */
typedef struct {
  CUfunction function;
  unsigned grid[3], block[3], cluster[3], shared;
  CUstream stream;
  void **values, **extra;
  int cooperative;
  char *name, *part;
  uint64_t key, number;
  size_t count;
  Parameter parameters[MOST_PARAMETERS];
} Launch;

static void stop(const char *what, const char *why) {
  if (!__atomic_exchange_n(&state.stopped, 1, __ATOMIC_SEQ_CST))
    fprintf(stderr, "kernelmate capture: nothing more is recorded in this process: %s: %s\n", what, why);
}

static char *text(const char *format, ...) {
  char *made = NULL;
  va_list values;
  va_start(values, format);
  if (vasprintf(&made, format, values) < 0) made = NULL;
  va_end(values);
  return made;
}

/* Writes a file; returns 0 if that fails. */
static int write_file(const char *folder, const char *name, const void *data, size_t bytes) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), done = file >= 0;
  for (size_t at = 0; done && at < bytes;) {
    ssize_t written = write(file, (const char *)data + at, bytes - at);
    if (written < 0 && errno == EINTR) continue;
    done = written > 0;
    at += done ? (size_t)written : 0;
  }
  int cause = errno;
  if (file >= 0 && close(file) != 0) done = 0;
  if (!done) stop(path, strerror(cause));
  return done;
}

/* Appends a line to PID.KIND in one call, so that lines of several threads do not mix. */
static void append(const char *kind, const char *line) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/%ld.%s", state.folder, (long)getpid(), kind);
  char *whole = text("%s\n", line);
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (whole == NULL || file < 0 || write(file, whole, strlen(whole)) < 0) stop(path, strerror(errno));
  if (file >= 0) close(file);
  free(whole);
}

static void note(uint64_t key, const char *outcome) {
  char line[64];
  snprintf(line, sizeof line, "%016" PRIx64 " %s", key, outcome), append("log", line);
}

/* Gives the place and length of a kernel's name without namespaces, template arguments and parameters: `base_name` of records.py. */
static const char *base_name(const char *name, size_t *length) {
  const char *last = name;
  *length = strcspn(name, "<(");
  if (strncmp(name, "_Z", 2) != 0) {
    for (size_t at = 0; at + 1 < *length; ++at)
      if (name[at] == ':' && name[at + 1] == ':') last = name + at + 2;
    *length -= (size_t)(last - name);
    return last;
  }
  const char *rest = name + 2 + strspn(name + 2, "NKL");
  *length = strlen(name);
  while (isdigit((unsigned char)*rest)) {
    char *begin;
    size_t bytes = strtoul(rest, &begin, 10);
    if (bytes > strlen(begin)) break;
    last = begin;
    *length = bytes;
    rest = begin + bytes;
  }
  return last;
}

static int is_wanted(const char *name) {
  size_t own, wanted;
  const char *first = base_name(name, &own), *second = base_name(state.kernel, &wanted);
  return own == wanted && memcmp(first, second, own) == 0;
}

static uint64_t hashed(uint64_t hash, const void *data, size_t bytes) { /* FNV-1a */
  for (size_t at = 0; at < bytes; ++at) hash = (hash ^ ((const unsigned char *)data)[at]) * 1099511628211u;
  return hash;
}

static const uint64_t BASIS = 14695981039346656037u;

static void note_name(const char *name) {
  uint64_t hash = hashed(BASIS, name, strlen(name));
  pthread_mutex_lock(&state.lock);
  size_t at = 0;
  while (at < state.name_count && state.names[at] != hash) ++at;
  int fresh = at == state.name_count && at < MOST_NAMES;
  if (fresh) state.names[state.name_count++] = hash;
  pthread_mutex_unlock(&state.lock);
  if (fresh) append("names", name);
}

/* Returns the buffer that `extra` passes in place of single values, or NULL. */
static const unsigned char *packed(void **extra) {
  for (size_t at = 0; extra != NULL && extra[at] != CU_LAUNCH_PARAM_END; at += 2)
    if (extra[at] == CU_LAUNCH_PARAM_BUFFER_POINTER) return extra[at + 1];
  return NULL;
}

/* Copies the parameters that are passed, and finds the memory that addresses among them point to; 0 on failure. */
static int read_parameters(Launch *launch) {
  size_t offset, bytes;
  const unsigned char *buffer = packed(launch->extra);
  CUfunction function = launch->function, loaded;
  if (driver.parameter_of(function, 0, &offset, &bytes) == CUDA_ERROR_INVALID_HANDLE && driver.function_of_kernel != NULL &&
      driver.function_of_kernel(&loaded, (CUkernel)function) == CUDA_SUCCESS)
    function = loaded; /* a launch takes a CUkernel, too */
  for (; driver.parameter_of(function, launch->count, &offset, &bytes) == CUDA_SUCCESS; ++launch->count) {
    if (launch->count == MOST_PARAMETERS || (launch->values == NULL && buffer == NULL)) return 0;
    Parameter *one = &launch->parameters[launch->count];
    one->bytes = bytes;
    one->passed = malloc(bytes ? bytes : 1);
    if (one->passed == NULL) return 0;
    memcpy(one->passed, launch->values != NULL ? launch->values[launch->count] : buffer + offset, bytes);
    CUdeviceptr value = 0, base = 0;
    size_t length = 0;
    if (bytes == sizeof value) memcpy(&value, one->passed, sizeof value);
    if (value != 0 && driver.get_range(&base, &length, value) == CUDA_SUCCESS) {
      one->address = value;
      one->extent = base + length - value;
    }
  }
  return 1;
}

/* Divides the limit among the buffers: small ones are recorded whole, the others get equal parts of what is left. */
static void divide_limit(Launch *launch) {
  uint64_t part = state.limit, before = 0;
  while (part != before) {
    uint64_t left = state.limit, large = 0;
    for (size_t at = 0; at < launch->count; ++at) {
      Parameter *one = &launch->parameters[at];
      one->copied = one->extent <= part ? one->extent : part;
      if (one->extent > part) ++large;
      else left -= one->extent <= left ? one->extent : left;
    }
    before = part;
    uint64_t total = 0;
    for (size_t at = 0; at < launch->count; ++at) total += launch->parameters[at].copied;
    if (total <= state.limit) return;
    part = large > 0 ? left / large : state.limit / launch->count;
    if (part >= before) part = before - before / 4 - 1;
  }
}

static uint64_t shape_key(const Launch *launch) {
  uint64_t hash = hashed(BASIS, launch->name, strlen(launch->name));
  hash = hashed(hash, launch->grid, sizeof launch->grid);
  hash = hashed(hash, launch->block, sizeof launch->block);
  hash = hashed(hash, launch->cluster, sizeof launch->cluster);
  hash = hashed(hash, &launch->shared, sizeof launch->shared);
  for (size_t at = 0; at < launch->count; ++at) {
    const Parameter *one = &launch->parameters[at];
    uint64_t value = 0;
    if (one->address != 0) value = one->extent;
    else if (one->bytes <= sizeof value) memcpy(&value, one->passed, one->bytes);
    if (one->address == 0 && value >= LARGEST_KEYED) value = 0; /* bits of a float */
    hash = hashed(hash, &value, sizeof value);
  }
  return hash;
}

/* Decides about a launch and counts it; returns NULL if it is to be recorded, else its outcome. */
static const char *refusal(Launch *launch) {
  pthread_mutex_lock(&state.lock);
  launch->number = state.seen++;
  size_t at = 0;
  while (at < state.key_count && state.keys[at] != launch->key) ++at;
  const char *outcome = NULL;
  if (launch->number % state.every != 0) outcome = "sampled";
  else if (at == MOST_SHAPES || (at < state.key_count && state.taken[at] >= state.shapes)) outcome = "enough";
  else {
    if (at == state.key_count) state.keys[state.key_count++] = launch->key;
    ++state.taken[at];
  }
  pthread_mutex_unlock(&state.lock);
  return outcome;
}

/* --------------------------------------------------------------------------------------------------------- launches */

static void end_launch(Launch *launch) {
  if (launch == NULL) return;
  for (size_t at = 0; at < MOST_PARAMETERS && launch->parameters[at].passed != NULL; ++at) {
    free(launch->parameters[at].passed);
    free(launch->parameters[at].before);
  }
  free(launch->name);
  free(launch->part);
  free(launch);
}

/* Removes what was written of a launch that is not recorded. */
static void discard(Launch *launch) {
  char path[PATH_BYTES];
  for (size_t at = 0; launch->part != NULL && at < launch->count; ++at)
    for (int after = 0; after < 2; ++after) {
      snprintf(path, sizeof path, "%s/%zu.%s", launch->part, at, after ? "after" : "before");
      unlink(path);
    }
  if (launch->part != NULL) {
    snprintf(path, sizeof path, "%s/launch.json", launch->part);
    unlink(path);
    rmdir(launch->part);
  }
}

/* Copies the buffers from the device; those after the launch are written only where they differ. 0 on failure. */
static int copy_buffers(Launch *launch, int after) {
  char name[32];
  if (driver.synchronize() != CUDA_SUCCESS) return 0;
  for (size_t at = 0; at < launch->count; ++at) {
    Parameter *one = &launch->parameters[at];
    if (one->address == 0) continue;
    unsigned char *data = malloc(one->copied ? one->copied : 1);
    int done = data != NULL && driver.copy_to_host(data, one->address, one->copied) == CUDA_SUCCESS;
    if (done && after) one->changed = memcmp(data, one->before, one->copied) != 0;
    snprintf(name, sizeof name, "%zu.%s", at, after ? "after" : "before");
    if (done && (!after || one->changed)) done = write_file(launch->part, name, data, one->copied);
    if (after || !done) free(data);
    else one->before = data;
    if (!done) return 0;
  }
  return 1;
}

static int write_description(const Launch *launch) {
  char *json = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&json, &bytes);
  if (out == NULL) return 0;
  fprintf(out, "{\"format\": %d, \"kernel\": \"", FORMAT);
  for (const char *at = launch->name; *at; ++at)
    if ((unsigned char)*at >= ' ' && *at != '"' && *at != '\\') fputc(*at, out);
  fprintf(out, "\", \"key\": \"%016" PRIx64 "\", \"number\": %" PRIu64 ", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], ", launch->key,
          launch->number, launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2]);
  fprintf(out, "\"shared\": %u, \"cooperative\": %s, \"emulated\": false, ", launch->shared, launch->cooperative ? "true" : "false");
  if (launch->cluster[0] != 0) fprintf(out, "\"cluster\": [%u, %u, %u], ", launch->cluster[0], launch->cluster[1], launch->cluster[2]);
  fputs("\"parameters\": [", out);
  for (size_t at = 0; at < launch->count; ++at) {
    const Parameter *one = &launch->parameters[at];
    fprintf(out, "%s{\"passed\": \"", at ? ", " : "");
    for (size_t byte = 0; byte < one->bytes; ++byte) fprintf(out, "%02x", one->passed[byte]);
    fputc('"', out);
    if (one->address != 0)
      fprintf(out, ", \"buffer\": {\"extent\": %zu, \"bytes\": %zu, \"address\": %llu}", one->extent, one->copied,
              (unsigned long long)one->address);
    fputc('}', out);
  }
  fputs("]}\n", out);
  int done = fclose(out) == 0 && write_file(launch->part, "launch.json", json, bytes);
  free(json);
  return done;
}

/* Returns 1 if the stream, or any other with the same effect, records a graph, in which nothing can be copied. */
static int in_graph(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = driver.is_capturing == NULL ? CUDA_SUCCESS : driver.is_capturing(stream, &status);
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Lets this thread copy while other threads record graphs; the second call restores the mode. */
static void exchange(CUstreamCaptureMode *mode) {
  if (driver.exchange_mode != NULL) driver.exchange_mode(mode);
}

static void before_launch(Launch *launch, uint64_t *slot) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  exchange(&mode);
  int graph = in_graph(launch->stream), done = !graph && read_parameters(launch);
  launch->key = shape_key(launch);
  const char *outcome = graph ? "graph" : !done ? "failed" : refusal(launch);
  if (outcome == NULL) {
    divide_limit(launch);
    launch->part = text("%s/.%ld-%" PRIu64, state.folder, (long)getpid(), launch->number);
    if (launch->part == NULL || mkdir(launch->part, 0700) != 0) stop(launch->part ? launch->part : "memory", strerror(errno));
    else if (copy_buffers(launch, 0)) *slot = (uint64_t)(uintptr_t)launch;
    if (*slot == 0) outcome = "failed";
  }
  exchange(&mode);
  if (*slot != 0) return;
  discard(launch);
  note(launch->key, outcome);
  end_launch(launch);
}

static void after_launch(Launch *launch, int launched) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  exchange(&mode);
  int done = launched && copy_buffers(launch, 1) && write_description(launch);
  exchange(&mode);
  if (done) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%ld-%" PRIu64, state.folder, (long)getpid(), launch->number);
    done = rename(launch->part, path) == 0;
  }
  if (!done) discard(launch);
  note(launch->key, done ? "recorded" : "failed");
  end_launch(launch);
}

static void set_sides(unsigned *sides, unsigned x, unsigned y, unsigned z) { sides[0] = x, sides[1] = y, sides[2] = z; }

static void read_config(Launch *launch, const CUlaunchConfig *config) {
  set_sides(launch->grid, config->gridDimX, config->gridDimY, config->gridDimZ);
  set_sides(launch->block, config->blockDimX, config->blockDimY, config->blockDimZ);
  launch->shared = config->sharedMemBytes, launch->stream = config->hStream;
  for (unsigned at = 0; at < config->numAttrs; ++at) {
    const CUlaunchAttributeValue *value = &config->attrs[at].value;
    if (config->attrs[at].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) launch->cooperative = value->cooperative;
    if (config->attrs[at].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      set_sides(launch->cluster, value->clusterDim.x, value->clusterDim.y, value->clusterDim.z);
  }
}

/* Fills in the launch that a call of the driver makes; 0 if the call launches no kernel. */
static int read_call(Launch *launch, CUpti_CallbackId id, const void *given) {
  if (id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx || id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz) {
    const cuLaunchKernelEx_params *p = given;
    launch->function = p->f, launch->values = p->kernelParams, launch->extra = p->extra;
    read_config(launch, p->config);
    return 1;
  }
  launch->cooperative = id == CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel || id == CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz;
  if (!launch->cooperative && id != CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel && id != CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz) return 0;
  const cuLaunchKernel_params *p = given; /* a cooperative launch has the same, up to kernelParams */
  launch->function = p->f, launch->stream = p->hStream, launch->values = p->kernelParams, launch->shared = p->sharedMemBytes;
  if (!launch->cooperative) launch->extra = p->extra;
  set_sides(launch->grid, p->gridDimX, p->gridDimY, p->gridDimZ);
  set_sides(launch->block, p->blockDimX, p->blockDimY, p->blockDimZ);
  return 1;
}

/* Keeps the machine code of a module that holds the kernel. */
static void keep_module(const CUpti_ModuleResourceData *module) {
  size_t length;
  const char *wanted = base_name(state.kernel, &length);
  if (module->pCubin == NULL || memmem(module->pCubin, module->cubinSize, wanted, length) == NULL) return;
  char name[64];
  snprintf(name, sizeof name, "%ld-%" PRIu64 ".cubin", (long)getpid(), __atomic_fetch_add(&state.modules, 1, __ATOMIC_SEQ_CST));
  write_file(state.folder, name, module->pCubin, module->cubinSize);
}

static void CUPTIAPI on_callback(void *unused, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
  (void)unused;
  if (__atomic_load_n(&state.stopped, __ATOMIC_SEQ_CST)) return;
  if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
    keep_module(((const CUpti_ResourceData *)data)->resourceDescriptor);
    return;
  }
  const CUpti_CallbackData *call = data;
  if (call->callbackSite == CUPTI_API_EXIT) {
    Launch *launch = (Launch *)(uintptr_t)*call->correlationData;
    *call->correlationData = 0;
    if (launch != NULL) after_launch(launch, *(CUresult *)call->functionReturnValue == CUDA_SUCCESS);
    return;
  }
  *call->correlationData = 0;
  if (id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch || id == CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz) {
    note_name("(a CUDA graph)");
    return;
  }
  Launch *launch = calloc(1, sizeof *launch);
  const char *name = call->symbolName;
  int launches = launch != NULL && read_call(launch, id, call->functionParams);
  if (launches && name == NULL && (driver.name_of == NULL || driver.name_of(&name, launch->function) != CUDA_SUCCESS)) name = NULL;
  if (launches && name != NULL) note_name(name);
  if (launches && name != NULL && is_wanted(name) && (launch->name = strdup(name)) != NULL) before_launch(launch, call->correlationData);
  else end_launch(launch);
}

static uint64_t number_of(const char *variable, uint64_t least) {
  const char *value = getenv(variable);
  uint64_t number = value ? strtoull(value, NULL, 10) : 0;
  return number < least ? least : number;
}

static int find_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) return 0;
  *(void **)&driver.get_range = dlsym(library, "cuMemGetAddressRange_v2");
  *(void **)&driver.copy_to_host = dlsym(library, "cuMemcpyDtoH_v2");
  *(void **)&driver.synchronize = dlsym(library, "cuCtxSynchronize");
  *(void **)&driver.is_capturing = dlsym(library, "cuStreamIsCapturing");
  *(void **)&driver.exchange_mode = dlsym(library, "cuThreadExchangeStreamCaptureMode");
  *(void **)&driver.function_of_kernel = dlsym(library, "cuKernelGetFunction");
  *(void **)&driver.name_of = dlsym(library, "cuFuncGetName");
  *(void **)&driver.parameter_of = dlsym(library, "cuFuncGetParamInfo");
  return driver.get_range && driver.copy_to_host && driver.synchronize && driver.parameter_of;
}

/* Called by the driver when the program initialises it. */
__attribute__((visibility("default"))) int InitializeInjection(void) {
  static const CUpti_CallbackId launches[] = {
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,          CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,             CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
  };
  state.folder = getenv("KERNELMATE_CAPTURE_FOLDER");
  state.kernel = getenv("KERNELMATE_CAPTURE_KERNEL");
  if (state.folder == NULL || state.kernel == NULL) return 1;
  state.limit = number_of("KERNELMATE_CAPTURE_LIMIT", 0);
  state.every = number_of("KERNELMATE_CAPTURE_EVERY", 1);
  state.shapes = number_of("KERNELMATE_CAPTURE_SHAPES", 1);
  const char *file = getenv("KERNELMATE_CAPTURE_CUPTI");
  void *cupti = dlopen(file ? file : "libcupti.so", RTLD_NOW | RTLD_GLOBAL);
  if (cupti == NULL) return stop("CUPTI", dlerror()), 1;
  if (!find_driver()) return stop("the driver", "it lacks cuFuncGetParamInfo, which came with CUDA 12.4"), 1;
  CUptiResult (*subscribe)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
  CUptiResult (*enable)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId);
  *(void **)&subscribe = dlsym(cupti, "cuptiSubscribe");
  *(void **)&enable = dlsym(cupti, "cuptiEnableCallback");
  CUpti_SubscriberHandle subscriber;
  if (subscribe == NULL || enable == NULL || subscribe(&subscriber, on_callback, NULL) != CUPTI_SUCCESS)
    return stop("CUPTI", "another tool of this process uses it, such as a profiler"), 1;
  CUptiResult result = enable(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_LOADED);
  for (size_t at = 0; at < sizeof launches / sizeof *launches && result == CUPTI_SUCCESS; ++at)
    result = enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, launches[at]);
  if (result != CUPTI_SUCCESS) stop("CUPTI", "it does not call back for launches");
  return 1;
}
