// Of NCCL, what the plug-in for NVIDIA devices calls; ../nccl.cc answers as NCCL 2.28.9 does.
#pragma once

#include <driver_types.h>

#include <climits>
#include <cstddef>

#define NCCL_VERSION_CODE 22809
#define NCCL_SPLIT_NOCOLOR (-1)

using ncclComm_t = struct ncclComm *;
enum ncclResult_t {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress
};
enum ncclDataType_t {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16
};
enum ncclRedOp_t { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER                                                                    \
  { INT_MIN }

extern "C" {
ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t communicator);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t *made,
                           ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *state);
ncclResult_t ncclCommFinalize(ncclComm_t communicator);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void *operand, void *result, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *operand, void *result, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *operand, void *result, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *operand, void *result, size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream);
}
