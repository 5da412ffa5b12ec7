/* Browsers start no worker in a page that was opened as a file. There the search runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = frame.contentDocument.createElement("script")
      script.src = url
      this.loaded = new Promise(resolve => script.addEventListener("load", resolve))
      frame.contentDocument.body.append(script)
    }

    async postMessage(data) {
      await this.loaded
      this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }))
    }

    terminate() {
      this.inner.frameElement.remove()
    }
  }
}
