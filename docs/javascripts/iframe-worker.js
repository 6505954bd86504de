// Search for pages that are opened as files: browsers start no worker there, so a hidden frame runs its script.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.ready = new Promise((done) => this.frame.addEventListener("load", done, { once: true }));
    this.receive = (event) => {
      if (event.source !== this.frame.contentWindow) return;
      const message = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(message);
      this.onmessage?.(message);
    };
    window.addEventListener("message", this.receive);
    this.frame.srcdoc = `<body><script>
      window.postMessage = (data) => parent.postMessage(data, "*");
      window.importScripts = async (...urls) => {
        for (const url of urls) {
          await new Promise((done) => {
            const script = document.createElement("script");
            script.src = url;
            script.onload = done;
            document.body.append(script);
          });
        }
      };
    </script><script src="${url}"></script></body>`;
    document.body.append(this.frame);
  }

  async postMessage(data) {
    await this.ready;
    this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
  }

  terminate() {
    window.removeEventListener("message", this.receive);
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
