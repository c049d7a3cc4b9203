#!/usr/bin/env bash
#
# GoQueue on Kubernetes: on kind, on EKS by Terraform, or on a cluster that is there.
#
#   deploy.sh deploy    kind|dev|prod     cluster, image, chart, test: all of it
#   deploy.sh goqueue   [kind|dev|prod]   image, chart, test, on a cluster that exists
#   deploy.sh upgrade   [kind|dev|prod]   the same for a release that is well: pods are replaced one by one.
#                                         Values in use are kept: the number of nodes is nobody's but yours
#   deploy.sh url       [kind|dev|prod]   how to reach it, for: eval "$(deploy.sh url kind)"
#   deploy.sh status    [kind|dev|prod]   release, pods, volumes, and what the nodes say
#   deploy.sh benchmark [kind|dev|prod]   publish and read back from inside the cluster
#   deploy.sh destroy   kind|dev|prod     take it away
#
# Without a target: the cluster of kubectl's context, or of --context.
#
#   --dry-run             print the commands, and run none
#   --yes                 Terraform applies without asking (prod is never destroyed without)
#   --context NAME        a context of kubectl's, where no target is given
#   --namespace NAME      namespace of the release (goqueue)
#   --image REPO:TAG      an image that exists, also REPO@sha256:...; otherwise one is built
#   --values FILE         values of the chart, after the target's own; may be repeated
#   --timeout DURATION    how long pods may take to be ready (15m)
#   --region NAME         AWS region, where it is not the environment's default
#   --var-file FILE       variables for Terraform
#   --state-bucket NAME   bucket of prod's Terraform state; also GOQUEUE_STATE_BUCKET
#
# Each step is told before it is done. A step that fails ends the script; what came before holds, and the same
# command goes on from there. Exit codes: 1 a step failed, 2 the command line is wrong, 3 a program is missing.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

readonly RELEASE=goqueue CHART=deploy/helm/goqueue DOCKERFILE=deploy/docker/Dockerfile
readonly KIND_CLUSTER=goqueue KIND_PORT=8443
# shellcheck disable=SC2016 # a script for the pod's shell
readonly IN_POD='server=http://localhost:8080; ca=/etc/goqueue/tls/ca.crt; key=/etc/goqueue/secrets/admin-key; '\
'if [ -f $ca ]; then server=https://localhost:8080; export GOQUEUE_CA_FILE=$ca; fi; '\
'if [ -f $key ]; then read -r GOQUEUE_API_KEY < $key || true; export GOQUEUE_API_KEY; fi; '\
'exec goqueue-cli -s $server cluster health'

COMMAND='' TARGET='' CONTEXT='' NAMESPACE='' IMAGE='' REGION='' VAR_FILE='' DRY_RUN='' YES='' INITIALISED='' TIMEOUT=15m
STATE_BUCKET=${GOQUEUE_STATE_BUCKET:-}
VALUES=()
STEP=''

main() {
  read_options "$@"
  exec 3>&2
  if [[ $DRY_RUN ]]; then exec 3>&1; fi
  require_tools
  OUT=build/deploy/${TARGET:-cluster}
  if [[ ! $DRY_RUN ]]; then mkdir -p "$OUT"; fi
  "command_$COMMAND"
}

# --- commands

command_deploy() {
  case $TARGET in
    kind) create_kind ;;
    *) apply_terraform ;;
  esac
  command_goqueue
}

command_goqueue() {
  find_cluster
  provide_image
  install_chart --install --create-namespace
  await_rollout "$TIMEOUT"
  test_release
  step "ready; its address and keys: deploy/deploy.sh url${TARGET:+ $TARGET}"
}

command_upgrade() {
  find_cluster
  step "see that all nodes are in sync: an upgrade takes away one after the other"
  run "${KUBECTL[@]}" rollout status "statefulset/$RELEASE" --timeout=60s
  provide_image
  install_chart
  await_rollout "$TIMEOUT"
  test_release
}

command_url() {
  find_cluster
  step "write the authority that signed the nodes' certificate to $OUT/ca.crt"
  deferred "${KUBECTL[@]}" get service "$RELEASE" -o 'jsonpath={.spec.ports[0].name}'
  local scheme=$REPLY
  if [[ $DRY_RUN || $scheme == https ]]; then
    run_to "$OUT/ca.crt" "${KUBECTL[@]}" get secret "$RELEASE-tls" -o 'go-template={{index .data "ca.crt" | base64decode}}'
    echo "export GOQUEUE_CA_FILE=$(quoted "$ROOT/$OUT/ca.crt")"
  fi
  local port=$KIND_PORT
  if [[ $TARGET != kind ]]; then
    port=8080
    step "it is reached by a tunnel; leave this running: $(quoted "${KUBECTL[@]}") port-forward service/$RELEASE $port"
  fi
  echo "export GOQUEUE_SERVER=$(quoted "$scheme://localhost:$port")"
  echo "export GOQUEUE_API_KEY=\"\$($(quoted "${KUBECTL[@]}") get secret $RELEASE-admin -o $(quoted 'go-template={{index .data "admin-key" | base64decode}}'))\""
}

command_status() {
  find_cluster
  step "the release"
  run "${HELM[@]}" status "$RELEASE"
  step "its pods and volumes"
  run "${KUBECTL[@]}" get statefulset,pods,pvc,services -l "app.kubernetes.io/instance=$RELEASE" -o wide
  step "what the nodes say"
  run "${KUBECTL[@]}" exec "statefulset/$RELEASE" -c goqueue -- sh -c "$IN_POD"
}

command_benchmark() {
  find_cluster
  step "start a job that publishes and reads back"
  deferred "${KUBECTL[@]}" get statefulset "$RELEASE" -o 'jsonpath={.spec.template.spec.containers[0].image}'
  run_to "$OUT/benchmark.yaml" sed -e "s|IMAGE|$REPLY|" -e "s|NAMESPACE|$NAMESPACE|" deploy/benchmark/job.yaml
  run "${KUBECTL[@]}" delete job,configmap "$RELEASE-benchmark" --ignore-not-found
  run "${KUBECTL[@]}" create configmap "$RELEASE-benchmark" --from-file=deploy/benchmark/load.py
  run "${KUBECTL[@]}" apply -f "$OUT/benchmark.yaml"
  step "what it measures"
  run "${KUBECTL[@]}" logs --follow "job/$RELEASE-benchmark" --pod-running-timeout=5m
  run "${KUBECTL[@]}" wait --for=condition=complete "job/$RELEASE-benchmark" --timeout=60s
  run "${KUBECTL[@]}" delete job,configmap "$RELEASE-benchmark"
}

command_destroy() {
  if [[ $TARGET == kind ]]; then
    step "delete the kind cluster $KIND_CLUSTER with all its data"
    run kind delete cluster --name "$KIND_CLUSTER"
    return
  fi
  find_cluster
  step "uninstall the release"
  run "${HELM[@]}" uninstall "$RELEASE" --ignore-not-found --wait
  if [[ $TARGET == dev ]]; then
    step "delete its volumes, and wait until they are gone"
    run "${KUBECTL[@]}" delete pvc,secret,configmap --ignore-not-found -l "app.kubernetes.io/instance=$RELEASE"
    run "${KUBECTL[@]}" wait --for=delete pv --all --timeout=5m
  else
    step "volumes and the archive are kept; these are the volumes"
    run "${KUBECTL[@]}" get pv -o wide
  fi
  local approve=()
  if [[ $YES && $TARGET == dev ]]; then approve=(-auto-approve); fi
  step "destroy what Terraform made"
  run "${TERRAFORM[@]}" destroy "${VARS[@]}" "${approve[@]}"
}

# --- steps

create_kind() {
  step "create the kind cluster $KIND_CLUSTER, unless there is one"
  unless kind get kubeconfig --name "$KIND_CLUSTER" -- \
    kind create cluster --name "$KIND_CLUSTER" --config deploy/kind/cluster.yaml --wait 3m
}

init_terraform() {
  if [[ $INITIALISED ]]; then return; fi
  INITIALISED=yes
  local backend=()
  if [[ $TARGET == prod ]]; then
    backend=("-backend-config=bucket=$STATE_BUCKET")
    if [[ $REGION ]]; then backend+=("-backend-config=region=$REGION"); fi
  fi
  step "initialise Terraform"
  run "${TERRAFORM[@]}" init -input=false "${backend[@]}"
}

apply_terraform() {
  init_terraform
  local approve=()
  if [[ $YES ]]; then approve=(-auto-approve); fi
  step "make network, cluster, nodes, keys and bucket: 15 to 20 minutes the first time"
  run "${TERRAFORM[@]}" apply "${VARS[@]}" "${approve[@]}"
}

# Sets CONTEXT and NAMESPACE, and the beginnings of commands for them.
find_cluster() {
  case $TARGET in
    kind) CONTEXT=kind-$KIND_CLUSTER ;;
    dev | prod)
      CONTEXT=goqueue-$TARGET
      init_terraform
      deferred "${TERRAFORM[@]}" output -raw cluster_name
      local cluster=$REPLY
      deferred "${TERRAFORM[@]}" output -raw region
      step "have kubectl know the cluster as $CONTEXT"
      run aws eks update-kubeconfig --name "$cluster" --region "$REPLY" --alias "$CONTEXT"
      if [[ ! $NAMESPACE ]]; then
        deferred "${TERRAFORM[@]}" output -raw namespace
        NAMESPACE=$REPLY
      fi
      ;;
    *)
      if [[ ! $CONTEXT ]]; then
        deferred kubectl config current-context
        CONTEXT=$REPLY
      fi
      ;;
  esac
  NAMESPACE=${NAMESPACE:-goqueue}
  KUBECTL=(kubectl --context "$CONTEXT" --namespace "$NAMESPACE")
  HELM=(helm --kube-context "$CONTEXT" --namespace "$NAMESPACE")
}

# Sets IMAGE_VALUES: what tells the chart of the image.
provide_image() {
  if [[ $IMAGE == *@* ]]; then
    IMAGE_VALUES=(--set-string "image.repository=${IMAGE%@*}" --set-string "image.digest=${IMAGE#*@}")
    return
  elif [[ $IMAGE ]]; then
    IMAGE_VALUES=(--set-string "image.repository=${IMAGE%:*}" --set-string "image.tag=${IMAGE##*:}")
    return
  fi
  find_version
  local tag=$VERSION-$REVISION
  IMAGE_VALUES=(--set-string "image.tag=$tag")
  if [[ $TARGET == kind ]]; then
    step "build the image and load it into the machines"
    run docker build "${BUILD_ARGUMENTS[@]}" --file "$DOCKERFILE" --tag "goqueue:$tag" .
    run kind load docker-image "goqueue:$tag" --name "$KIND_CLUSTER"
  else
    push_image "$tag"
  fi
}

push_image() {
  local repository registry region
  deferred "${TERRAFORM[@]}" output -raw region && region=$REPLY
  deferred "${TERRAFORM[@]}" output -raw image_registry && registry=$REPLY
  deferred "${TERRAFORM[@]}" output -raw image_repository && repository=$REPLY
  deferred "${TERRAFORM[@]}" output -raw image_name
  local there=(aws ecr describe-images --region "$region" --repository-name "$REPLY" --image-ids "imageTag=$1")
  step "build the image and push it, unless this version is there: tags are never given twice"
  unless "${there[@]}" -- docker build --platform linux/amd64 "${BUILD_ARGUMENTS[@]}" \
    --file "$DOCKERFILE" --tag "$repository:$1" .
  piped aws ecr get-login-password --region "$region" -- docker login --username AWS --password-stdin "$registry"
  unless "${there[@]}" -- docker push "$repository:$1"
}

# Sets VERSION and REVISION, the commit; with changes that are not committed, the time, too. The image
# says both of itself, by BUILD_ARGUMENTS.
find_version() {
  VERSION=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$CHART/Chart.yaml")
  REVISION=$(git rev-parse --short=12 HEAD 2>/dev/null || echo source)
  if [[ $REVISION == source || $(git status --porcelain --untracked-files=no 2>/dev/null) ]]; then
    REVISION+=-$(date -u +%Y%m%d%H%M%S)
  fi
  BUILD_ARGUMENTS=(--build-arg "VERSION=$VERSION" --build-arg "REVISION=$REVISION")
}

# Takes more options of helm upgrade. Values that were given before stay, as far as no file names them.
install_chart() {
  local files=() file
  case $TARGET in
    kind) if [[ $COMMAND != upgrade ]]; then files=(-f deploy/kind/values.yaml); fi ;; # they are in use
    dev | prod)
      step "values of the chart from Terraform's outputs"
      run_to "$OUT/values.yaml" "${TERRAFORM[@]}" output -raw helm_values
      files=(-f "$OUT/values.yaml")
      ;;
  esac
  for file in "${VALUES[@]}"; do files+=(-f "$file"); done
  step "install or upgrade the chart"
  run "${HELM[@]}" upgrade "$RELEASE" "$CHART" "$@" --reset-then-reuse-values "${files[@]}" "${IMAGE_VALUES[@]}"
}

await_rollout() {
  step "wait until all nodes are ready, and in sync"
  run "${KUBECTL[@]}" rollout status "statefulset/$RELEASE" --timeout="$1"
}

test_release() {
  step "publish, consume and trace a message"
  run "${HELM[@]}" test "$RELEASE" --logs
}

# --- running and telling

step() {
  STEP=$1
  echo "# $1" >&3
}

run() {
  echo "  $(quoted "$@")" >&3
  if [[ $DRY_RUN ]]; then return; fi
  "$@" || failed $? "$@"
}

# The first word is a file that standard output goes to.
run_to() {
  local file=$1
  shift
  echo "  $(quoted "$@") > $(quoted "$file")" >&3
  if [[ $DRY_RUN ]]; then return; fi
  "$@" >"$file" || failed $? "$@"
}

# unless PROBE... -- COMMAND...
unless() {
  local probe=()
  while [[ $1 != -- ]]; do probe+=("$1") && shift; done
  shift
  echo "  $(quoted "${probe[@]}") > /dev/null 2>&1 || $(quoted "$@")" >&3
  if [[ $DRY_RUN ]]; then return; fi
  if "${probe[@]}" >/dev/null 2>&1; then
    echo "  it is there" >&3
    return
  fi
  "$@" || failed $? "$@"
}

# piped COMMAND... -- COMMAND...
piped() {
  local first=()
  while [[ $1 != -- ]]; do first+=("$1") && shift; done
  shift
  echo "  $(quoted "${first[@]}") | $(quoted "$@")" >&3
  if [[ $DRY_RUN ]]; then return; fi
  "${first[@]}" | "$@" || failed $? "${first[@]}" '|' "$@"
}

# Sets REPLY to what a command prints; in a dry run to the command, for the shell to put in.
deferred() {
  if [[ $DRY_RUN ]]; then
    REPLY="\$($(quoted "$@"))"
    return
  fi
  REPLY=$("$@") || failed $? "$@"
  if [[ ! $REPLY ]]; then failed 0 "$@"; fi
}

# Words as a shell reads them again.
quoted() {
  local word all=()
  for word in "$@"; do
    # shellcheck disable=SC2016 # the text of a command that `deferred` left for the shell
    if [[ $DRY_RUN && $word == *'$('* ]]; then
      all+=("\"$word\"")
    elif [[ $word =~ ^[A-Za-z0-9@%+=:,./_-]+$ ]]; then
      all+=("$word")
    else
      all+=("'${word//\'/\'\\\'\'}'")
    fi
  done
  echo "${all[*]}"
}

failed() {
  local code=$1
  shift
  if [[ $code == 0 ]]; then
    echo "failed: $STEP: nothing was printed by: $(quoted "$@")" >&2
  else
    echo "failed: $STEP: exit code $code of: $(quoted "$@")" >&2
  fi
  echo "What came before holds; the same command goes on from there." >&2
  exit 1
}

# --- the command line

usage() {
  sed -n '3,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

wrong() {
  echo "deploy.sh: $1 (deploy/deploy.sh --help)" >&2
  exit 2
}

read_options() {
  while (($#)); do
    case $1 in
      -h | --help) usage && exit 0 ;;
      --dry-run) DRY_RUN=yes ;;
      --yes) YES=yes ;;
      --context | --namespace | --image | --values | --timeout | --region | --var-file | --state-bucket)
        if (($# < 2)) || [[ ! $2 ]]; then wrong "$1 needs a value"; fi
        read_value "$1" "$2"
        shift
        ;;
      -*) wrong "there is no option $1" ;;
      *)
        if [[ ! $COMMAND ]]; then COMMAND=$1; elif [[ ! $TARGET ]]; then TARGET=$1; else wrong "what is $1?"; fi
        ;;
    esac
    shift
  done
  check_options
}

read_value() {
  case $1 in
    --context) CONTEXT=$2 ;;
    --namespace) NAMESPACE=$2 ;;
    --image) IMAGE=$2 ;;
    --timeout) TIMEOUT=$2 ;;
    --region) REGION=$2 ;;
    --state-bucket) STATE_BUCKET=$2 ;;
    --values)
      if [[ ! -f $2 ]]; then wrong "there is no file $2"; fi
      VALUES+=("$(realpath "$2")")
      ;;
    --var-file)
      if [[ ! -f $2 ]]; then wrong "there is no file $2"; fi
      VAR_FILE=$(realpath "$2")
      ;;
  esac
}

check_options() {
  case $COMMAND in
    deploy | goqueue | upgrade | url | status | benchmark | destroy) ;;
    '') usage >&2 && exit 2 ;;
    *) wrong "there is no command $COMMAND" ;;
  esac
  case $TARGET in
    kind | dev | prod) ;;
    '')
      if [[ $COMMAND == deploy || $COMMAND == destroy ]]; then wrong "$COMMAND needs kind, dev or prod"; fi
      if [[ ! $IMAGE && ($COMMAND == goqueue || $COMMAND == upgrade) ]]; then
        wrong "$COMMAND without a target needs --image: one that the cluster can pull"
      fi
      ;;
    *) wrong "there is no target $TARGET: kind, dev or prod" ;;
  esac
  if [[ $TARGET && $CONTEXT ]]; then wrong "--context is for a cluster that is no target of this script"; fi
  if [[ $IMAGE && $IMAGE != *[:@]* ]]; then wrong "--image needs a tag or a digest: $IMAGE"; fi
  if [[ $TARGET == prod && ! $STATE_BUCKET ]]; then
    wrong "prod keeps Terraform's state in a bucket: --state-bucket, or GOQUEUE_STATE_BUCKET"
  fi
  TERRAFORM=(terraform "-chdir=deploy/terraform/environments/$TARGET")
  VARS=()
  if [[ $REGION ]]; then VARS+=(-var "region=$REGION"); fi
  if [[ $VAR_FILE ]]; then VARS+=("-var-file=$VAR_FILE"); fi
}

require_tools() {
  local needed=(kubectl helm) missing='' tool
  case $TARGET in
    kind) needed+=(kind docker) ;;
    dev | prod) needed+=(terraform aws docker) ;;
  esac
  if [[ $DRY_RUN ]]; then return; fi
  for tool in "${needed[@]}"; do
    if ! command -v "$tool" >/dev/null; then missing+="  $tool: $(hint "$tool")"$'\n'; fi
  done
  if [[ $missing ]]; then
    printf 'deploy.sh %s needs programs that are not on PATH:\n%s' "$COMMAND${TARGET:+ $TARGET}" "$missing" >&2
    exit 3
  fi
}

hint() {
  case $1 in
    kubectl) echo "https://kubernetes.io/docs/tasks/tools (brew install kubectl)" ;;
    helm) echo "https://helm.sh/docs/intro/install (brew install helm)" ;;
    kind) echo "https://kind.sigs.k8s.io/docs/user/quick-start (brew install kind)" ;;
    docker) echo "https://docs.docker.com/engine/install (apt-get install docker.io)" ;;
    terraform) echo "https://developer.hashicorp.com/terraform/install" ;;
    aws) echo "https://docs.aws.amazon.com/cli/latest/userguide (pip install awscli)" ;;
  esac
}

main "$@"
